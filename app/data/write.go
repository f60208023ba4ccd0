package data

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentcli/app/console"
	"agentcli/app/report"
	"agentcli/datasets"
	"agentcli/internal/exit"
	"agentcli/internal/malformed"
	"agentcli/internal/setting"
	"agentcli/internal/text"
	"agentcli/rewards"
)

// VerifyOptions say what is verified.
type VerifyOptions struct {
	Names  []string // none: all that are on this machine
	Split  string   // "": each that is here
	JSON   bool
	Checks Checks // without Notice
}

// WriteVerified verifies datasets and writes what it found as a table or as JSON. ErrFaults
// is in its error where something is wrong.
func WriteVerified(ctx context.Context, o VerifyOptions, s console.Streams) error {
	o.Checks.Notice = s.Say
	reports := []Report{}
	names := o.Names
	if len(names) == 0 {
		for _, in := range datasets.List("", func(name string, err error) { reports = append(reports, unreadable(name, err)) }) {
			if in.Local && in.Kind != "generated" {
				names = append(names, in.Name)
			}
		}
	}
	for _, name := range names {
		splits := []string{o.Split}
		if o.Split == "" {
			have, err := datasets.SplitsHere(ctx, name, datasets.Options{})
			if entry := (*malformed.Error)(nil); errors.As(err, &entry) {
				reports = append(reports, unreadable(name, err))
				continue
			}
			if err != nil {
				return err
			}
			if len(have) > 0 {
				splits = have
			}
		}
		for _, one := range splits {
			r, err := Verify(ctx, name, one, o.Checks)
			if err != nil {
				return err
			}
			reports = append(reports, r)
		}
	}
	bad := 0
	for _, r := range reports {
		if r.Missing || len(r.Faults) > 0 {
			bad++
		}
	}
	if err := writeReports(reports, o.JSON, s); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %s: %w", bad, text.Plural(len(reports), "split"), ErrFaults)
	}
	return nil
}

// unreadable reports a dataset whose entry cannot be read.
func unreadable(name string, err error) Report {
	r := Report{Name: name, Local: true}
	r.add("%v", err)
	return r
}

func writeReports(reports []Report, asJSON bool, s console.Streams) error {
	if asJSON {
		return console.WriteJSON(s.Out, reports)
	}
	var rows [][]string
	for _, r := range reports {
		result := "ok"
		switch n := len(r.Faults) + r.More; {
		case r.Missing:
			result = fmt.Sprintf("not here: %s %s", setting.Name("datasets.Pull"), text.ShellWord(r.Name))
		case n > 0:
			result = text.Plural(n, "fault")
			if r.Bad > 0 {
				result += fmt.Sprintf(", %s that cannot be read", text.Plural(r.Bad, "row"))
			}
		}
		pinned := "not pinned"
		switch {
		case r.Pinned:
			pinned = "yes"
		case r.Local:
			pinned = "local file"
		}
		rows = append(rows, []string{r.Name, r.Split, fmt.Sprint(r.Rows), fmt.Sprint(r.Sums), pinned, result})
	}
	err := report.Table(s.Out, "", []string{"NAME", "SPLIT", "ROWS", "SUMS", "PINNED", "RESULT"}, rows)
	for _, r := range reports {
		for _, note := range r.unknownSums() {
			s.Say(r.Name + ": " + note)
		}
		for _, fault := range r.Faults {
			s.Say(r.Name + ": " + strings.TrimPrefix(fault, r.Name+": "))
		}
		if r.More > 0 {
			s.Say(fmt.Sprintf("%s: %s more", r.Name, text.Plural(r.More, "fault")))
		}
	}
	return err
}

// unknownSums say which files have no SHA-256 in the entry, and what they were compared with.
func (r *Report) unknownSums() []string {
	if r.Missing || len(r.Faults) > 0 {
		return nil
	}
	var out []string
	if r.HubSums > 0 {
		out = append(out, fmt.Sprintf("checksum of %s unknown to the entry: compared with the hub's, recorded at the download",
			text.Plural(r.HubSums, "file")))
	}
	if n := r.Files - r.Sums - r.HubSums; n > 0 && !r.Local {
		out = append(out, fmt.Sprintf("checksum of %s unknown: compared with nothing", text.Plural(n, "file")))
	}
	return out
}

// OverlapOptions say what is compared.
type OverlapOptions struct {
	Names  [2]string // two datasets
	Splits [2]string // "": their own
	Words  int       // how many in a row must be the same
	Limit  int       // of the rows of each; 0: all
}

// WriteOverlap writes the rows of the first dataset that overlap with the second as JSON
// lines, and how many they are on stderr.
func WriteOverlap(ctx context.Context, o OverlapOptions, s console.Streams) error {
	var both [2]*datasets.Dataset
	for i, name := range o.Names {
		if datasets.Generated(name) && o.Limit == 0 {
			return exit.Usagef("dataset %s is generated and has no end; say how many problems with %s N", name, setting.Name("Limit"))
		}
		d, err := datasets.Open(ctx, name, datasets.Options{Split: o.Splits[i], Limit: o.Limit, Ahead: true, Notice: s.Say,
			ObjectAnswers: rewards.TakesObjects})
		if err != nil {
			return err
		}
		both[i] = d
	}
	found, err := Overlap(ctx, both[0], both[1], o.Words)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(s.Out)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	for _, m := range found.Matches {
		if err := enc.Encode(m); err != nil {
			return errors.Join(err, out.Flush())
		}
	}
	s.Say(fmt.Sprintf("%d of %s of %s overlap with %d of %s of %s: %d words in a row, or a whole shorter question", found.InA,
		text.Plural(found.RowsA, "row"), named(both[0]), found.InB, text.Plural(found.RowsB, "row"), named(both[1]), o.Words))
	return out.Flush()
}

// named is a dataset's name with its split.
func named(d *datasets.Dataset) string {
	if d.Split == "" {
		return d.Name
	}
	return d.Name + " (" + d.Split + ")"
}
