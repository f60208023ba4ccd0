package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"agentcli/app/console"
	"agentcli/app/rundir"
	"agentcli/internal/exit"
	"agentcli/internal/filesys"
	"agentcli/internal/text"
	"agentcli/journal"

	"github.com/urfave/cli/v2"
)

func journalCommand() *cli.Command {
	sub := func(name, usage, description string, run func(path string, c *cli.Context, s console.Streams) error,
		flags ...cli.Flag) *cli.Command {
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: "DIR", Description: description, Flags: flags,
			Action: func(c *cli.Context) error {
				if c.NArg() != 1 {
					return exit.Usagef("journal %s needs DIR, the folder of a run, or a journal's own path; got %d arguments", name, c.NArg())
				}
				path := c.Args().First()
				if st, err := os.Stat(path); err == nil && st.IsDir() {
					if path = filepath.Join(path, rundir.JournalFile); !rundir.Exists(path) {
						return exit.Usagef("journal %s: there is no %s in %s; runs of eval, rollout and each step of a loop have one",
							name, rundir.JournalFile, c.Args().First())
					}
				}
				return run(path, c, streamsOf(c))
			}}
	}
	return &cli.Command{
		Name:  "journal",
		Usage: "check, repair or print the journal of a run",
		Subcommands: []*cli.Command{
			sub("check", "read every record and report what is damaged",
				"Reads only, also while the run is going on. Exit code 1 if records are lost.",
				runJournalCheck, &cli.BoolFlag{Name: "json", Usage: "print the report as JSON"}),
			sub("repair", "write what is whole into a new journal and keep the old one as journal.broken",
				"Not needed before --resume, which does the same. A journal without damage stays as it is.", runJournalRepair),
			sub("cat", "print every trajectory that can be read, one JSON object a line",
				"Prints failed attempts too, in the order in which they ended.", runJournalCat),
		},
	}
}

func runJournalCheck(path string, c *cli.Context, s console.Streams) error {
	r, err := journal.Check(filesys.OS, path)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(s.Out, "%s\n", b); err != nil {
			return err
		}
	} else if err := printJournalReport(s, r); err != nil {
		return err
	}
	if r.Header != "" {
		return errors.New("the journal is damaged and cannot be resumed; agentcli journal cat gives all that can be read")
	}
	if !r.Sound() {
		return errors.New("the journal is damaged; agentcli journal repair or --resume keeps all that can be read")
	}
	return nil
}

func printJournalReport(s console.Streams, r *journal.Report) error {
	w := bufio.NewWriter(s.Out)
	fmt.Fprintf(w, "version       %d\nbytes         %d\ntrajectories  %d, of which %d are finished\n",
		r.Version, r.Bytes, r.Trajectories, r.Finished)
	for _, d := range r.Damage {
		lost := fmt.Sprintf("%d records are lost", d.Lost)
		switch d.Lost {
		case 1:
			lost = "one record is lost"
		case -1:
			lost = "records are lost"
		case 0:
			lost = "an unfinished record; nothing is lost"
		}
		fmt.Fprintf(w, "damage        bytes %d to %d: %s\n", d.From, d.To, lost)
	}
	if r.Unfinished > 0 {
		fmt.Fprintf(w, "unfinished    %d bytes at the end, as a crash leaves them\n", r.Unfinished)
	}
	if r.Header != "" {
		fmt.Fprintf(w, "header        %s\n", text.OneLine(r.Header))
	}
	return w.Flush()
}

func runJournalRepair(path string, _ *cli.Context, s console.Streams) error {
	kept, r, err := journal.Repair(filesys.OS, path)
	switch {
	case errors.Is(err, journal.ErrInUse):
		return exit.Usagef("%s: its run is going on in another process; wait for it, or end it", path)
	case err != nil:
		return err
	case kept == "":
		s.Say(fmt.Sprintf("%s has no damage: %d trajectories; nothing was changed", path, r.Trajectories))
	default:
		s.Say(fmt.Sprintf("%s: %d trajectories kept; the old file is %s", path, r.Trajectories, filepath.Base(kept)))
	}
	return nil
}

func runJournalCat(path string, _ *cli.Context, s console.Streams) error {
	w := bufio.NewWriterSize(s.Out, 1<<16)
	err := journal.Cat(filesys.OS, path, func(b []byte) error {
		if _, err := w.Write(b); err != nil {
			return err
		}
		return w.WriteByte('\n')
	})
	if ferr := w.Flush(); err == nil {
		err = ferr
	}
	return err
}
