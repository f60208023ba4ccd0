// Package report writes what was measured: an evaluation as a table, JSON, CSV or Markdown,
// and numbers with their errors in words.
package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"agentcli/eval"
	"agentcli/internal/text"
	"agentcli/traj"
)

// Formats are what Print takes.
var Formats = []string{"table", "json", "csv", "markdown"}

// Print writes a report in one of Formats.
func Print(w io.Writer, r *eval.Report, format string) error {
	switch format {
	case "json":
		return r.WriteJSON(w)
	case "csv":
		return reportCSV(w, r)
	case "markdown":
		return reportMarkdown(w, r)
	}
	return reportTable(w, r)
}

func reportCSV(w io.Writer, r *eval.Report) error {
	c := csv.NewWriter(w)
	_ = c.Write([]string{"dataset", "model", "metric", "value", "stderr", "problems", "samples"})
	for _, name := range r.MetricOrder {
		m := r.Metrics[name]
		_ = c.Write([]string{r.Dataset, r.Model, name, Number(m.Value, -1), Number(m.StdErr, -1),
			strconv.Itoa(m.Problems), strconv.Itoa(r.Samples)})
	}
	c.Flush()
	return c.Error()
}

// Number is a number with so many decimals; -1: as many as it has. "" of nil.
func Number(v *float64, decimals int) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', decimals, 64)
}

// Certainty is what stands after a number: its standard error, or, of a share
// that came out as exactly 0 or 1, how far from it the truth may be.
func Certainty(value, stderr, bound *float64, decimals int) string {
	switch {
	case value == nil:
		return " ± –"
	case bound != nil:
		return fmt.Sprintf(" (%s, 95 %%)", Limit(*value, *bound, 1))
	}
	return " ± " + Dash(Number(stderr, decimals))
}

// Limit is a bound with two digits of its distance from the value; scale is
// 100 for percent.
func Limit(value, bound, scale float64) string {
	sign, far := "≤", bound
	if value == 1 {
		sign, far = "≥", 1-bound
	}
	decimals := max(0, int(math.Ceil(-math.Log10(far*scale)))+1)
	return sign + " " + strconv.FormatFloat(scale*bound, 'f', decimals, 64)
}

func estimate(e eval.Estimate) string {
	return fmt.Sprintf("%6s", Dash(Number(e.Value, 3))) + Certainty(e.Value, e.StdErr, e.Bound, 3)
}

// WithError is a number and its standard error, if it has one.
func WithError(v, stderr *float64, decimals int) string {
	if stderr == nil {
		return Dash(Number(v, decimals))
	}
	return Number(v, decimals) + " ± " + Number(stderr, decimals)
}

// Dash stands for a text that is not there.
func Dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func reportTitle(r *eval.Report) string {
	data := r.Dataset
	if r.Split != "" {
		data += " (" + r.Split + ")"
	}
	return fmt.Sprintf("%s · %s · %s × %s", data, r.Model, text.Plural(r.Problems, "problem"), text.Plural(r.Samples, "sample"))
}

func reportMarkdown(w io.Writer, r *eval.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n| metric | value | ± |\n|---|---:|---:|\n", reportTitle(r))
	for _, name := range r.MetricOrder {
		m := r.Metrics[name]
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, Dash(Number(m.Value, 3)),
			strings.Trim(strings.TrimPrefix(Certainty(m.Value, m.StdErr, m.Bound, 3), " ± "), " ()"))
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(reportNotes(r), "; "))
	_, err := io.WriteString(w, b.String())
	return err
}

func reportTable(w io.Writer, r *eval.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", reportTitle(r))
	for _, name := range r.MetricOrder {
		m := r.Metrics[name]
		fmt.Fprintf(&b, "  %-9s %s\n", name, estimate(m))
	}
	b.WriteByte('\n')
	for _, line := range reportNotes(r) {
		fmt.Fprintf(&b, "  %s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func reportNotes(r *eval.Report) []string {
	var ends []string
	for _, t := range traj.Terminations {
		if n := r.Terminations[t]; n > 0 {
			ends = append(ends, fmt.Sprintf("%s %d", t, n))
		}
	}
	percent := func(name string) string {
		e := eval.Estimate{Value: r.Rates[name], StdErr: r.RatesStdErr[name]}
		if b, ok := r.RatesBound[name]; ok {
			e.Bound = &b
		}
		return percent(e)
	}
	notes := []string{
		"ended: " + strings.Join(ends, ", "),
		fmt.Sprintf("no answer %s, truncated %s, tool errors %s", percent("no_answer"), percent("truncated"), percent("tool_error")),
		fmt.Sprintf("%s turns and %s tokens a trajectory", WithError(r.Turns, r.TurnsStdErr, 2),
			WithError(r.Tokens.PerTrajectory, r.Tokens.StdErr, 1)),
	}
	if v := r.Rates["observation_tokens"]; v != nil && *v > 0 { // tools were used
		notes = append(notes, fmt.Sprintf("answered %s, valid actions %s, %s valid calls a trajectory, "+
			"tool results %s of the tokens after the prompt",
			percent("answered"), percent("valid_action"), WithError(r.Calls, r.CallsStdErr, 2), percent("observation_tokens")))
	}
	for _, e := range r.Environments {
		name := "tools"
		if e.Env != "" {
			name = text.Name(e.Env, 60)
		}
		notes = append(notes, fmt.Sprintf("environment %s: pass@1 %s of %s", name, strings.TrimSpace(estimate(e.PassAt1)),
			text.Plural(e.Problems, "problem")))
	}
	if l := r.Looks; l != nil {
		notes = append(notes, looksNotes(l)...)
	}
	if v := r.Rates["undecided"]; v != nil && *v > 0 {
		notes = append(notes, fmt.Sprintf("undecided %s: the grader could not show these answers to be right or wrong; they count as wrong",
			percent("undecided")))
	}
	if r.LeftOut > 0 {
		notes = append(notes, fmt.Sprintf("%s failed or cancelled, left out of every number but \"ended\"", text.Plural(r.LeftOut, "trajectory")))
	}
	if r.Incomplete > 0 {
		notes = append(notes, fmt.Sprintf("%s incomplete: an attempt failed for infrastructure reasons or was never made, and counts nowhere",
			text.Plural(r.Incomplete, "problem")))
	}
	return notes
}

// percent is a share with its error.
func percent(e eval.Estimate) string {
	times100 := func(v *float64) *float64 {
		if v == nil {
			return nil
		}
		x := 100 * *v
		return &x
	}
	switch {
	case e.Value == nil:
		return "–"
	case e.Bound != nil:
		return fmt.Sprintf("%.1f %% (%s %%, 95 %%)", 100**e.Value, Limit(*e.Value, *e.Bound, 100))
	}
	return WithError(times100(e.Value), times100(e.StdErr), 1) + " %"
}

// looksNotes say how images were used.
func looksNotes(l *eval.Looks) []string {
	notes := []string{fmt.Sprintf("looked closer in %s, %s crops a trajectory, calls refused %s", percent(l.Share),
		WithError(l.PerTrajectory.Value, l.PerTrajectory.StdErr, 2), percent(l.Refused))}
	if l.Width.Value == nil { // nobody looked
		return notes
	}
	return append(notes, fmt.Sprintf("a crop is %s × %s pixels of its original; right with a crop %s, without %s",
		WithError(l.Width.Value, l.Width.StdErr, 0), WithError(l.Height.Value, l.Height.StdErr, 0), percent(l.With), percent(l.Without)))
}

// Measured is a mean over so many tasks, from 0 to 1, with what is known of its error.
func Measured(mean, stderr float64, tasks int) string {
	return fmt.Sprintf("%.3f", mean) + Certainty(&mean, &stderr, eval.Bound(mean, tasks), 3)
}
