package train

import (
	"cmp"
	"errors"
	"fmt"

	"agentcli/app/models"
	"agentcli/internal/exit"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/trainer"
	"agentcli/trainer/rows"
)

// otherTemplate counts the files whose prompts another chat template made, as far as
// they say, and names the first. A model without one cannot tell. named is the one that takes
// the place of the model's own; "": none does.
func otherTemplate(data *rows.Data, actor models.Trainable, named string) (n int, first string, err error) {
	template, err := models.TemplateOf(actor.ChatTemplate(), named)
	if err != nil || template == "" {
		return 0, "", err
	}
	have := models.HashText(template)
	for i, r := range data.Runs {
		if want := r.Model.TemplateHash; want != "" && want != models.HashText("") && want != have {
			if n++; n == 1 {
				first = data.Files[i]
			}
		}
	}
	return n, first, nil
}

// What may be wrong with rows, unless Options.Force is set.
var (
	// ErrOtherTemplate: another chat template made the prompts.
	ErrOtherTemplate = errors.New("another chat template")
	// ErrCut: top-p, top-k, min-p or a grammar cut the distribution that the tokens are from.
	ErrCut = errors.New("the distribution was cut")
	// ErrGreedy: the tokens were not sampled but are the likeliest.
	ErrGreedy = errors.New("greedy attempts")
)

// checkTokens looks whether the rows mean to this model what they meant to the
// one that sampled them, and drops those that cannot be trained on with the settings c.
func checkTokens(data *rows.Data, c trainer.Config, actor models.Trainable, path string, o Options, note func(string, ...any)) error {
	var other []string
	for i, r := range data.Runs {
		if want := r.Model.TokenizerHash; want != "" && want != actor.TokenizerHash() {
			other = append(other, data.Files[i])
		}
	}
	if n := len(other); n > 0 {
		why := fmt.Sprintf("%s was sampled with another tokenizer than that of %s; its ids mean other words there",
			text.AndMore(other[0], n), path)
		if err := exit.Override(o.Force, note, models.ErrOtherTokens, why,
			fmt.Sprintf(" (name the right model with %s, or add %s)", setting.Name("Model"), setting.Name("Force"))); err != nil {
			return err
		}
	}
	n, file, err := otherTemplate(data, actor, o.Open.ChatTemplate)
	if err != nil {
		return err
	}
	if n > 0 {
		of := "that of " + path
		if o.Open.ChatTemplate != "" {
			of = fmt.Sprintf("%s %s", setting.Name("ChatTemplate"), o.Open.ChatTemplate)
		}
		why := fmt.Sprintf("%s was sampled with another chat template than %s; its prompts are not those that the model is asked with",
			text.AndMore(file, n), of)
		if err := exit.Override(o.Force, note, ErrOtherTemplate, why,
			fmt.Sprintf(" (name the right model with %s or its template with %s, or add %s)", setting.Name("Model"), setting.Name("ChatTemplate"),
				setting.Name("Force"))); err != nil {
			return err
		}
	}
	if err := data.CheckTokens(actor.VocabSize()); err != nil {
		return setting.Errorf("%w; another model than %s sampled it: name the right one with %s", err, path, setting.Name("Model"))
	}
	return trainer.DropUnfit(data, actor.Window(), c)
}

// checkSampled refuses rows whose tokens do not come from softmax(logits/T): a policy
// gradient on them is biased. Where they do, it looks whether all that is asked can
// be had at that temperature.
func checkSampled(d *rows.Data, o Options, note func(string, ...any)) error {
	if o.Config.IsSupervised() {
		return nil // whose tokens they are does not matter there
	}
	var cut []string
	how := ""
	for i, r := range d.Runs {
		if x := r.Filtered(); x != "" {
			cut, how = append(cut, d.Files[i]), cmp.Or(how, x)
		}
	}
	if n := len(cut); n > 0 {
		why := fmt.Sprintf("%s was sampled with %s: those tokens do not follow the model's own distribution, and a gradient on them is biased",
			text.AndMore(cut[0], n), how)
		if err := exit.Override(o.Force, note, ErrCut, why, fmt.Sprintf(" (roll out with nothing cut, or add %s)",
			setting.Name("Force"))); err != nil {
			return err
		}
	}
	if id := d.Greedy(); id != "" {
		why := id + " was sampled at temperature 0: a greedy reply was not drawn from a distribution, and there is no gradient of its chance"
		if err := exit.Override(o.Force, note, ErrGreedy, why,
			fmt.Sprintf(" (roll out with a temperature above 0, or add %s)", setting.Name("Force"))); err != nil {
			return err
		}
	}
	if err := trainer.CheckRecorded(d, o.Config); err != nil {
		return exit.UsageError{Err: err} // a flag that these rows do not allow
	}
	for which, name := range map[setting.Name]string{setting.Name("Ref"): o.Ref, setting.Name("Teacher"): o.Teacher} {
		for _, t := range d.Temperatures() {
			if t != 1 && models.IsServer(name) {
				return exit.Usagef("%s %s: %w", which, name, models.ErrRemoteTemperature(t))
			}
		}
	}
	return nil
}

// farApart is a mean difference of log-probs that two precisions of one model do
// not explain.
const farApart = .05

// checkRows looks whether the rows of all files can be trained on together.
func checkRows(d *rows.Data, o Options, note func(string, ...any)) error {
	if o.Config.ComparesGroups() {
		if err := d.CheckGroups(); err != nil {
			return err
		}
	}
	if p := d.Policies; len(p) > 1 && !o.Config.IsSupervised() {
		who := fmt.Sprintf("the rows were sampled by %d models, among them %s (%s) and %s (%s)", len(p),
			p[0].Name, p[0].File, p[1].Name, p[1].File)
		if o.Model == "" {
			return exit.Usagef("%s; name the one to train with %s", who, setting.Name("Model"))
		}
		note("warning: %s; all are trained on as if %s had sampled them", who, o.Model)
	}
	return nil
}
