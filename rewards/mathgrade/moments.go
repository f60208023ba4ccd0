package mathgrade

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

var (
	months   = map[string]int{}
	weekdays = map[string]bool{}
)

func init() {
	for _, name := range strings.Fields("monday tuesday wednesday thursday friday saturday sunday") {
		weekdays[name], weekdays[name[:3]] = true, true
	}
	for i, name := range strings.Fields("january february march april may june july august september october november december") {
		months[name], months[name[:3]] = i+1, i+1
	}
	months["sept"] = 9
}

// slashDate is a date as it is written in the United States. It may be a fraction, too.
var slashDate = regexp.MustCompile(`^(0?[1-9]|1[0-2])/(0?[1-9]|[12][0-9]|3[01])/([12][0-9]{3})$`)

// orFraction ends a moment that may be a fraction.
const orFraction = "/"

// momentOf is a date as 2024-01-05 or a time as 14:30:00; "" where a text is neither.
// A time without am or pm must have two digits of minutes.
func momentOf(s string) string {
	if len(s) > 60 {
		return ""
	}
	if !strings.ContainsAny(s, "0123456789") {
		switch {
		case !strings.Contains(s, "n"):
			return ""
		case wordsOf(s) == "noon":
			return "12:00:00"
		case wordsOf(s) == "midnight":
			return "00:00:00"
		}
		return ""
	}
	s = wordsOf(s)
	if d := dateOf(s); d != "" {
		return d
	}
	if d := slashDate.FindStringSubmatch(s); d != nil { // 7/4/1776, the month first
		return fmt.Sprintf("%s-%02s-%02s", d[3], d[1], d[2]) + orFraction
	}
	return timeOf(s)
}

func timeOf(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "a.m", "am"), "p.m", "pm")
	half := ""
	for _, h := range [...]string{"am", "pm"} {
		if rest, ok := strings.CutSuffix(s, h); ok {
			s, half = strings.TrimSpace(rest), h
		}
	}
	for name, h := range map[string]string{"noon": "pm", "midnight": "am"} { // 12 noon
		if rest, ok := strings.CutSuffix(s, name); ok && half == "" && (strings.TrimSpace(rest) == "12" || strings.TrimSpace(rest) == "12:00") {
			s, half = strings.TrimSpace(rest), h
		}
	}
	parts := strings.Split(s, ":")
	if len(parts) > 3 || len(parts) == 1 && half == "" {
		return ""
	}
	var n [3]int
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil || i > 0 && len(p) != 2 || i > 0 && v > 59 || len(p) > 2 || v < 0 {
			return ""
		}
		n[i] = v
	}
	switch {
	case half != "" && (n[0] < 1 || n[0] > 12), n[0] > 24:
		return ""
	case half == "pm" && n[0] < 12:
		n[0] += 12
	case half == "am" && n[0] == 12:
		n[0] = 0
	}
	t := fmt.Sprintf("%02d:%02d:%02d", n[0], n[1], n[2])
	if half == "" && n[0] >= 1 && n[0] <= 12 {
		return t + "?" // before or after noon is open
	}
	return t
}

// sameMoment compares two moments; a time without am or pm is equal to either.
func sameMoment(a, b string) bool {
	a, b = strings.TrimSuffix(a, orFraction), strings.TrimSuffix(b, orFraction)
	open := strings.HasSuffix(a, "?") != strings.HasSuffix(b, "?")
	a, b = strings.TrimSuffix(a, "?"), strings.TrimSuffix(b, "?")
	if a == b {
		return true
	}
	if !open || len(a) != 8 || len(b) != 8 {
		return false
	}
	h, _ := strconv.Atoi(a[:2])
	k, _ := strconv.Atoi(b[:2])
	return a[2:] == b[2:] && h%12 == k%12
}

// dateOf reads January 5, 2024; 5 January 2024; 5th of January; 2024-01-05.
func dateOf(s string) string {
	if len(s) == 10 && s[4] == '-' && s[7] == '-' {
		if m, err := strconv.Atoi(s[5:7]); err == nil && m >= 1 && m <= 12 {
			return s
		}
	}
	if len(s) == 7 && s[4] == '-' { // 2020-03
		year, err := strconv.Atoi(s[:4])
		if m, errM := strconv.Atoi(s[5:]); err == nil && errM == nil && year > 31 && m >= 1 && m <= 12 {
			return s + "-00"
		}
	}
	fields := strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || r == ',' })
	if len(fields) > 2 && weekdays[fields[0]] {
		fields = fields[1:]
	}
	if len(fields) < 2 || len(fields) > 5 {
		return ""
	}
	month, day, year := 0, 0, 0
	for _, f := range fields {
		if f == "of" || f == "the" {
			continue
		}
		if m := months[f]; m > 0 && month == 0 {
			month = m
			continue
		}
		for _, th := range [...]string{"st", "nd", "rd", "th"} {
			f = strings.TrimSuffix(f, th)
		}
		v, err := strconv.Atoi(f)
		switch {
		case err != nil || v <= 0:
			return ""
		case v <= 31 && day == 0:
			day = v
		case v > 31 && year == 0:
			year = v
		default:
			return ""
		}
	}
	if month == 0 {
		return ""
	}
	return fmt.Sprintf("%04d-%02d-%02d", year, month, day)
}
