package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"agentcli/app/loop"
	"agentcli/app/rolloutserver"
	"agentcli/app/rundir"
	"agentcli/app/train"
	"agentcli/internal/exit"
	"agentcli/trainer"

	"github.com/urfave/cli/v2"
)

// row is one row of the table of settings: everything that the program knows of a
// flag of eval, rollout, train or loop. From the table come the flags, --config and
// --print-config, a run's config.yaml, what --resume refuses, --help, --help-all and
// docs/flags.md.
type row struct {
	name  string
	short string // a second name
	group string // of the help
	// help is a noun phrase or an imperative. "(default: …)" at its end says what an
	// empty value or 0 stands for.
	help  string
	value any  // the default, of the flag's type; nil: what field has in the options' defaults
	kind  kind // what the value may name
	env   string
	// verbatim: the texts of a list keep the space around them.
	verbatim bool

	// field points to what takes the value, or is a list of such pointers. A pointer to a
	// pointer is set only where the setting is given.
	field any
	read  func(c *cli.Context) error // in place of storing the value in field
	// content is the text that a value stands for, as @FILE for what is in the file: a
	// run's folder keeps that. nil: the value itself.
	content func(value string) (string, error)
	check   func(name string, value any) error // nil: the options' own Validate does

	// The commands that have the setting, each in one of these.
	fixed   commandSet // a resumed run may not change it
	free    commandSet // a resumed run may change it
	once    commandSet // it is of one call and not kept with the run
	refused commandSet // known, so that it is refused by name

	basic  commandSet // --help lists it; elsewhere only --help-all does
	hidden bool       // no help lists it
	but    []variant  // what is otherwise in some commands

	// Whether a setting of training has an effect beside the others: always, or unless
	// idle says why not, or by trainer.Config.Settings, which both leaves to.
	always bool
	idle   func(c *cli.Context) (why string)
}

// variant is how some commands have a setting; what it leaves empty is as elsewhere.
type variant struct {
	in                 commandSet
	short, group, help string
	value              any
}

// commandSet is a set of commands.
type commandSet uint8

const (
	forEval commandSet = 1 << iota
	forRollout
	forTrain
	forLoop
	forDoctor
	forScore

	evalRollout     = forEval | forRollout
	evalRolloutLoop = evalRollout | forLoop
	trainLoop       = forTrain | forLoop
	allFour         = evalRollout | trainLoop
)

// commandNames are the commands with settings of the table, by name.
var commandNames = map[string]commandSet{
	"eval": forEval, "rollout": forRollout, "train": forTrain, "loop": forLoop, "doctor": forDoctor, "score": forScore,
}

// kind says what a text may name; a text of any kind but plain is not set where it is empty.
type kind uint8

const (
	plain    kind = 0
	path     kind = 1 << (iota - 1) // a file or folder: a training run stores it absolute
	address                         // a server or a program, perhaps with a key in it
	optional                        // anything else that may be left open
)

// options are what the settings fill; each command takes its part.
type options struct {
	loop   loop.Options // Rollout and Train in it are the options of the other commands, too
	passK  int
	format string
	// problems shows a row for each problem.
	problems bool
	file     string
	serve    rolloutserver.Options // where, and by whom it may be asked
}

func newOptions() *options {
	return &options{loop: loop.Options{Train: train.Options{Config: trainer.DefaultConfig()}}}
}

// table are all settings; the order of groups is that of the help.
func (o *options) table() []row {
	return slices.Concat(loopSettings(o), dataSettings(o), judgeSettings(o), samplingSettings(o), toolSettings(o), limitSettings(o),
		algorithmSettings(o), lossSettings(o), shapingSettings(o), criticSettings(o), supervisedSettings(o), optimiserSettings(o),
		adapterSettings(o), evaluationSettings(o), modelSettings(o), roleSettings(o), serverSettings(o), runSettings(o),
		budgetSettings(o), folderSettings(o), onceSettings(o))
}

// rows are the settings of a command, as it has them.
func (o *options) rows(command commandSet) []row {
	var list []row
	for _, s := range o.table() {
		if s.commands()&command == 0 {
			continue
		}
		for _, v := range s.but {
			if v.in&command == 0 {
				continue
			}
			override(&s.short, v.short)
			override(&s.group, v.group)
			override(&s.help, v.help)
			if v.value != nil {
				s.value = v.value
			}
		}
		list = append(list, s)
	}
	return list
}

// override replaces a column by what is not empty.
func override(s *string, other string) {
	if other != "" {
		*s = other
	}
}

// section gives rows what they leave out: the group, the commands and always.
func section(common row, rows []row) []row {
	for i := range rows {
		s := &rows[i]
		if s.group == "" {
			s.group = common.group
		}
		if s.commands() == 0 {
			s.fixed, s.free, s.once, s.refused = common.fixed, common.free, common.once, common.refused
		}
		s.always = s.always || common.always && s.idle == nil
	}
	return rows
}

// commands are those that know the setting.
func (s row) commands() commandSet { return s.fixed | s.free | s.once | s.refused }

// fields are the pointers that take the value.
func (s row) fields() []any {
	if list, ok := s.field.([]any); ok {
		return list
	}
	if s.field == nil {
		return nil
	}
	return []any{s.field}
}

// initial is the default.
func (s row) initial() any {
	if s.value != nil {
		return s.value
	}
	v := reflect.ValueOf(s.fields()[0]).Elem()
	if v.Kind() == reflect.Pointer {
		v = reflect.Zero(v.Type().Elem())
	}
	if v.Kind() == reflect.String { // of a type of its own, perhaps
		return v.String()
	}
	return v.Interface()
}

// flag makes the command line's flag.
func (s row) flag() cli.Flag {
	var short, env []string
	if s.short != "" {
		short = []string{s.short}
	}
	if s.env != "" {
		env = []string{s.env}
	}
	hidden := s.hidden
	var f cli.Flag
	switch v := s.initial().(type) {
	case string:
		f = &cli.StringFlag{Name: s.name, Aliases: short, Category: s.group, Usage: s.help, Value: v, EnvVars: env, Hidden: hidden}
	case bool:
		f = &cli.BoolFlag{Name: s.name, Aliases: short, Category: s.group, Usage: s.help, Hidden: hidden}
	case int:
		f = &cli.IntFlag{Name: s.name, Aliases: short, Category: s.group, Usage: s.help, Value: v, Hidden: hidden}
	case int64:
		f = &cli.Int64Flag{Name: s.name, Aliases: short, Category: s.group, Usage: s.help, Value: v, Hidden: hidden}
	case float64:
		f = &cli.Float64Flag{Name: s.name, Aliases: short, Category: s.group, Usage: s.help, Value: v, Hidden: hidden}
	case time.Duration:
		f = &cli.DurationFlag{Name: s.name, Aliases: short, Category: s.group, Usage: s.help, Value: v, Hidden: hidden}
	case []string:
		f = &cli.StringSliceFlag{Name: s.name, Aliases: short, Category: s.group, Usage: s.help, Hidden: hidden, KeepSpace: s.verbatim}
	default:
		panic(fmt.Sprintf("--%s: there are no flags of %T", s.name, v))
	}
	showDefault(f)
	return f
}

// given is the setting's value on the command line, in a file or in the environment.
func (s row) given(c *cli.Context) (any, bool) {
	var v any = c.StringSlice(s.name)
	if _, list := s.initial().([]string); !list {
		v = c.Value(s.name)
	}
	// c.IsSet would split the names of all flags for each flag that is not set.
	ok := slices.ContainsFunc(c.LocalFlagNames(), func(name string) bool { return name == s.name || s.short != "" && name == s.short })
	if s.content != nil && ok {
		if text, err := s.content(v.(string)); err == nil { // else read says what is wrong
			v = text
		}
	}
	return v, ok && !(s.env != "" && v == "") // an empty variable names nothing
}

// store puts the value where it belongs.
func (s row) store(c *cli.Context) {
	value, given := s.given(c)
	for _, p := range s.fields() {
		v := reflect.ValueOf(p).Elem()
		if v.Kind() == reflect.Pointer {
			if !given {
				continue
			}
			v.Set(reflect.New(v.Type().Elem()))
			v = v.Elem()
		}
		v.Set(reflect.ValueOf(value).Convert(v.Type()))
	}
}

// optionsOf reads the settings of a command, files applied, and checks each by itself.
func optionsOf(c *cli.Context) (*options, error) {
	o := newOptions()
	for _, s := range o.rows(commandOf(c)) {
		if s.read == nil {
			s.store(c)
		} else if err := s.read(c); err != nil {
			return o, err
		}
		if s.check != nil {
			value, _ := s.given(c)
			if err := s.check(s.name, value); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

// commandOf is the command whose action runs.
func commandOf(c *cli.Context) commandSet { return commandNames[c.Command.Name] }

// settingFlags are the flags of a command's settings.
func settingFlags(command commandSet) []cli.Flag {
	var flags []cli.Flag
	for _, s := range newOptions().rows(command) {
		flags = append(flags, s.flag())
	}
	return flags
}

// keptSettings are the settings that are given and are the run's, for its config.yaml.
func keptSettings(c *cli.Context) map[string]any {
	command, all := commandOf(c), map[string]any{}
	for _, s := range newOptions().rows(command) {
		if v, given := s.given(c); given && (s.fixed|s.free)&command != 0 {
			all[s.name] = stored(v)
		}
	}
	return all
}

// stored is a value as settings files have it.
func stored(v any) any {
	if d, ok := v.(time.Duration); ok {
		return d.String()
	}
	return v
}

// absolutePaths are settings with the paths among them absolute: a resumed run may stand in
// another folder, where new files may match a pattern.
func absolutePaths(all map[string]any) map[string]any {
	for _, s := range newOptions().rows(forTrain) {
		if name, ok := all[s.name].(string); ok && s.kind&path != 0 {
			all[s.name] = rundir.Absolute(name)
		}
	}
	return all
}

// fixedNames are the settings that a resumed run of the command may not change.
func fixedNames(command commandSet) []string {
	var names []string
	for _, s := range newOptions().rows(command) {
		if s.fixed&command != 0 {
			names = append(names, s.name)
		}
	}
	return names
}

// refuseChanged refuses what the command line gives of the fixed settings with another
// value than the run in dir began with. No file may be applied yet.
func refuseChanged(c *cli.Context, dir string) error {
	began := rundir.ReadSettings(filepath.Join(dir, rundir.ConfigFile))
	if began == nil {
		return nil // applyConfig says what is wrong with it
	}
	command := commandOf(c)
	for _, s := range newOptions().rows(command) {
		v, given := s.given(c)
		if s.fixed&command == 0 || !given {
			continue
		}
		now, was := rundir.SettingText(stored(v)), rundir.SettingText(began[s.name])
		if now == was || s.kind&path != 0 && rundir.SettingText(rundir.Absolute(fmt.Sprint(v))) == was {
			continue
		}
		err := exit.Usagef("--resume %s: --%s is %s and was %s when the run began; leave it as it was, or begin a new run", dir, s.name, now, was)
		if command == forTrain { // of a loop they are too many for a line
			return exit.Usagef("%w; %s", err, resumeHelp())
		}
		return err
	}
	return nil
}

// resumeHelp names what a resumed training run may change.
func resumeHelp() string {
	var names []string
	for _, s := range newOptions().rows(forTrain) {
		if s.free&forTrain != 0 {
			names = append(names, "--"+s.name)
		}
	}
	return "only " + strings.Join(names, ", ") + " may change"
}

// refuseUnknownHere refuses the settings that have no meaning in the command.
func refuseUnknownHere(c *cli.Context) error {
	command := commandOf(c)
	for _, s := range newOptions().rows(command) {
		if _, given := s.given(c); given && s.refused&command != 0 {
			return exit.Usagef("--%s has no meaning in a loop, which trains a local model on rollouts of its own", s.name)
		}
	}
	return nil
}

// printConfig writes the settings of a training run or a loop, as --config reads them. A
// name that is not given, as of a model, is left out.
func (o *options) printConfig(c *cli.Context) ([]byte, error) {
	command, all := commandOf(c), map[string]any{}
	for _, s := range o.rows(command) {
		if (s.fixed|s.free)&command == 0 || s.name == "preset" { // which is shown by what it sets
			continue
		}
		v, given := s.given(c)
		if s.isSettled() {
			if len(s.fields()) > 0 {
				v = held(s.fields()[0])
			}
			given = s.kind == plain || !reflect.ValueOf(v).IsZero()
		}
		if given {
			all[s.name] = stored(v)
		}
	}
	if o.loop.Train.PTX == "" {
		delete(all, "ptx-coef")
	}
	if o.loop.Train.Config.OffPolicy.Kind == "none" {
		delete(all, "off-policy-low")
		delete(all, "off-policy-high")
	}
	return rundir.MarshalSettings(all)
}

// isSettled reports whether the setting has a value where it is not given: that of others
// depends on the dataset and the model.
func (s row) isSettled() bool {
	return s.commands()&forTrain != 0 || s.group == groupLoop || s.name == "dataset" || s.name == "temperature"
}

// held is the value that a field has, as files have it.
func held(field any) any {
	v := reflect.ValueOf(field).Elem()
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() == reflect.String {
		return v.String()
	}
	return v.Interface()
}

// The checks of settings that no Validate of the options looks at.

// oneOf takes names, and old ones that the message does not list.
func oneOf(names []string, old ...string) func(string, any) error {
	return func(name string, v any) error {
		if !slices.Contains(names, v.(string)) && !slices.Contains(old, v.(string)) {
			last := len(names) - 1
			return exit.Usagef("--%s %q is unknown; it is %s or %s", name, v, strings.Join(names[:last], ", "), names[last])
		}
		return nil
	}
}

func notNegative(name string, v any) error {
	if !(number(v) >= 0) {
		return exit.Usagef("--%s is %v; it must not be negative", name, v)
	}
	return nil
}

func positive(name string, v any) error {
	if !(number(v) > 0) {
		return exit.Usagef("--%s is %v; it must be positive", name, v)
	}
	return nil
}

func number(v any) float64 {
	return reflect.ValueOf(v).Convert(reflect.TypeFor[float64]()).Float()
}
