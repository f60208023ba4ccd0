package mathexpr

import (
	"math/big"
	"strings"
)

// Unit is a unit of measurement: Factor of the base unit of its Dimension.
type Unit struct {
	Dimension string   // length, mass, …; "" of a thing that is counted
	Factor    *big.Rat // in units of the dimension
}

// unitTable has a line for each dimension: its units, each with its names.
var unitTable = map[string]string{
	"length": "1 m meter meters metre metres; 1000 km kilometer kilometers kilometre kilometres; 1/100 cm centimeter centimeters centimetre " +
		"centimetres; 1/1000 mm millimeter millimeters millimetre millimetres; 127/5000 in inch inches; 381/1250 ft foot feet; 1143/1250 yd " +
		"yard yards; " +
		"201168/125 mi mile miles; 1/10 dm; 1/1000000000 nm; 1/1000000 µm micrometer micrometers",
	"mass": "1 kg kilogram kilograms kilo kilos; 1/1000 g gram grams; 1/1000000 mg milligram milligrams; 45359237/100000000 lb lbs pound " +
		"pounds; " +
		"45359237/1600000000 oz ounce ounces; 1000 ton tons tonne tonnes",
	"time": "1 s sec secs second seconds; 60 min mins minute minutes; 3600 h hr hrs hour hours; 86400 day days; 604800 week weeks; " +
		"31536000 yr yrs year years; 2592000 month months; 1/1000 ms millisecond milliseconds",
	"money": "1 dollar dollars usd; 1/100 cent cents ¢ penny pennies",
	"speed": "1 m/s mps; 1397/3125 mph; 5/18 km/h kmh kph km/hr",
	"volume": "1 L l liter liters litre litres; 1/1000 ml mL milliliter milliliters; 473176473/125000000 gallon gallons gal; " +
		"473176473/500000000 quart quarts qt; 473176473/1000000000 pint pints; 1 dm^3",
	"angle":    "1 rad radian radians",
	"data":     "1 bit bits; 8 byte bytes; 8000 kb; 8000000 mb; 8000000000 gb",
	"energy":   "1 J joule joules; 1000 kJ kilojoule kilojoules; 1000000 MJ; 3600 Wh; 3600000 kWh; 4184/1000 cal; 4184 kcal calories calorie",
	"force":    "1 N newton newtons; 1000 kN",
	"power":    "1 W watt watts; 1000 kW kilowatt kilowatts; 1000000 MW megawatt megawatts",
	"voltage":  "1 V volt volts",
	"current":  "1 A ampere amperes amp amps",
	"hertz":    "1 Hz hertz; 1000 kHz; 1000000 MHz",
	"pressure": "1 Pa pascal pascals; 1000 kPa; 101325 atm; 100000 bar",
}

var units = func() map[string]Unit {
	all := map[string]Unit{}
	for dimension, line := range unitTable {
		for _, part := range strings.Split(line, ";") {
			names := strings.Fields(part)
			factor, _ := new(big.Rat).SetString(names[0])
			for _, name := range names[1:] {
				all[name] = Unit{dimension, factor}
			}
		}
	}
	return all
}()

// counted are words that follow a number without a meaning for its value.
var counted = func() map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields("unit units people person persons apples apple students student ways way times points point pts books " +
		"book coins coin " +
		"square squares sq cubic cu inches total pieces piece items item pages page marbles marble cookies cookie children child eggs egg " +
		"steps step " +
		"each per more less left right feet squared cubed letters words numbers integers integer values solutions solution triangles games " +
		"boys girls " +
		"men women cars trees birds dogs cats miles dozen dozens rounds trips hits runs cups cup slices slice bottles boxes box bags bag") {
		all[w] = true
	}
	return all
}()

// IsUnit reports whether a word after a number is a unit or a thing that is counted.
func IsUnit(w string) bool {
	if _, ok := units[w]; ok {
		return true
	}
	return counted[strings.ToLower(w)]
}

// scales are words for numbers that stand between a number and its unit.
var scales = map[string]int64{"dozen": 12, "hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000,
	"trillion": 1_000_000_000_000}

// Scale takes words such as million from the beginning of a unit: what they are worth, 1
// where there are none, and the unit behind them.
func Scale(unit string) (factor *big.Rat, rest string) {
	factor, rest = big.NewRat(1, 1), unit
	for range 3 { // hundred thousand million
		word, more, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n := scales[strings.TrimSuffix(strings.ToLower(word), "s")]
		if n == 0 {
			break
		}
		factor.Mul(factor, new(big.Rat).SetInt64(n))
		rest = more
	}
	return factor, rest
}

// UnitOf reads a unit as it is written after a number: cm, cm^2, square feet,
// km/h, miles per hour, million km. One that is not known counts things: its dimension is "".
func UnitOf(s string) Unit {
	if len(s) > maxUnit {
		return Unit{"", big.NewRat(1, 1)}
	}
	scale, s := Scale(s)
	u := unitOf(s) // 5 J, 5 mL
	if u.Dimension == "" {
		u = unitOf(strings.ToLower(s))
	}
	return Unit{u.Dimension, scale.Mul(scale, u.Factor)}
}

// maxUnit is the length of a text in bytes beyond which it is no unit.
const maxUnit = 256

var unitSpelling = strings.NewReplacer(" per ", "/", " / ", "/", "²", "^2", "³", "^3", "{", "", "}", "")

func unitOf(s string) Unit {
	s = strings.TrimRight(strings.TrimSpace(s), ".")
	s = unitSpelling.Replace(s)
	power := 1
	for _, p := range []struct {
		word string
		n    int
	}{{"square ", 2}, {"sq ", 2}, {"sq. ", 2}, {"cubic ", 3}, {"cu ", 3}} {
		if rest, ok := strings.CutPrefix(s, p.word); ok {
			s, power = rest, p.n
		}
	}
	for _, p := range []struct {
		word string
		n    int
	}{{"^2", 2}, {"^3", 3}, {" squared", 2}, {" cubed", 3}} {
		if rest, ok := strings.CutSuffix(s, p.word); ok {
			s, power = rest, p.n
		}
	}
	one := big.NewRat(1, 1)
	u, ok := units[s]
	if !ok {
		over, under, isRate := strings.Cut(s, "/")
		a, okA := units[strings.TrimSpace(over)]
		b, okB := units[strings.TrimSpace(under)]
		if isRate && okA && okB && power == 1 {
			u = Unit{a.Dimension + "/" + b.Dimension, new(big.Rat).Quo(a.Factor, b.Factor)}
			if u.Dimension == "length/time" {
				u.Dimension = "speed"
			}
			return u
		}
		return Unit{"", one}
	}
	if power > 1 {
		f := new(big.Rat).Set(u.Factor)
		for range power - 1 {
			f.Mul(f, u.Factor)
		}
		u = Unit{u.Dimension + string(rune('0'+power)), f}
		if u.Dimension == "length3" {
			u = Unit{"volume", f.Mul(f, big.NewRat(1000, 1))}
		}
	}
	return u
}
