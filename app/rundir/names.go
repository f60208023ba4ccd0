// Package rundir is the folder of a run: the names of its files, its settings as
// --config reads them, the list of the files that it reads, and what is checked before
// a run writes there. It knows no command: a message names the flags that the commands
// share (--output, --resume). It is layer 5, below the other packages of app.
package rundir

// Names within a run's folder.
const (
	ConfigFile       = "config.yaml"
	JournalFile      = "journal"
	TrajectoriesFile = "traj.parquet"
	ReportFile       = "report.json"
)

// Names within a training run's folder, beside the model's own files.
const (
	InputsFile = "train_files.json"
	CurveFile  = "curve.svg"
)

// FileMode is that of a run's files.
const FileMode = 0o644
