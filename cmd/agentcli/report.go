package main

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"

	"agentcli/eval"
	"agentcli/traj"
)

var reportFormats = []string{"table", "json", "csv", "markdown"}

// printReport writes a report in one of reportFormats.
func printReport(w io.Writer, r *eval.Report, format string) error {
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
		_ = c.Write([]string{r.Dataset, r.Model, name, number(m.Value, -1), number(m.StdErr, -1), strconv.Itoa(m.Problems), strconv.Itoa(r.Samples)})
	}
	c.Flush()
	return c.Error()
}

func number(v *float64, decimals int) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', decimals, 64)
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func reportTitle(r *eval.Report) string {
	return fmt.Sprintf("%s · %s · %s × %s", r.Dataset, r.Model, plural(r.Problems, "problem"), plural(r.Samples, "sample"))
}

func plural(n int, word string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(word, "y"):
		word = strings.TrimSuffix(word, "y") + "ies"
	default:
		word += "s"
	}
	return fmt.Sprintf("%d %s", n, word)
}

func reportMarkdown(w io.Writer, r *eval.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n| metric | value | ± |\n|---|---:|---:|\n", reportTitle(r))
	for _, name := range r.MetricOrder {
		m := r.Metrics[name]
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, dash(number(m.Value, 3)), dash(number(m.StdErr, 3)))
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
		fmt.Fprintf(&b, "  %-9s %6s ± %-6s\n", name, dash(number(m.Value, 3)), dash(number(m.StdErr, 3)))
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
		if v := r.Rates[name]; v != nil {
			return fmt.Sprintf("%.1f %%", 100**v)
		}
		return "–"
	}
	notes := []string{
		"ended: " + strings.Join(ends, ", "),
		fmt.Sprintf("no answer %s, truncated %s, tool errors %s", percent("no_answer"), percent("truncated"), percent("tool_error")),
		fmt.Sprintf("%s turns and %s tokens a trajectory", dash(number(r.Turns, 2)), dash(number(r.Tokens.PerTrajectory, 1))),
	}
	if r.Incomplete > 0 {
		notes = append(notes, fmt.Sprintf("%s incomplete: an attempt failed for infrastructure reasons or was never made, and counts nowhere",
			plural(r.Incomplete, "problem")))
	}
	return notes
}
