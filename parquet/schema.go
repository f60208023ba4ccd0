package parquet

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"agentcli/traj"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// The layout, version 1; images.go has what version 2 adds. A column that may be missing is nullable; every other
// is required, so that a reader of another world sees no stray nulls.

func col(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t}
}

func opt(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

var (
	i32  = arrow.PrimitiveTypes.Int32
	i64  = arrow.PrimitiveTypes.Int64
	f32  = arrow.PrimitiveTypes.Float32
	f64  = arrow.PrimitiveTypes.Float64
	text = arrow.BinaryTypes.String
	flag = arrow.FixedWidthTypes.Boolean

	toolCallType = arrow.StructOf(col("id", text), col("name", text), col("arguments", text))
	imageTypeV1  = arrow.StructOf(opt("path", text), opt("bytes", arrow.BinaryTypes.Binary)) // of no image
	messageType  = arrow.StructOf(col("role", text), col("content", text), opt("reasoning", text), opt("name", text),
		opt("tool_call_id", text), col("tool_calls", arrow.ListOfNonNullable(toolCallType)), col("images", arrow.ListOfNonNullable(imageTypeV1)))
	stepType = arrow.StructOf(col("sequence", i32), col("start", i32), col("end", i32), col("finish_reason", text),
		col("tool_calls", i32), col("tool_errors", i32), opt("reward", f64), col("prompt_tokens", i32),
		col("completion_tokens", i32), col("model_ms", f64), col("env_ms", f64), opt("error", text),
		opt("tool_cached", i32), opt("tool_malformed", i32), opt("policy_versions", arrow.ListOfNonNullable(i64)))
	sequenceType = arrow.StructOf(col("token_ids", arrow.ListOfNonNullable(i32)), col("loss_mask", arrow.ListOfNonNullable(flag)),
		col("logprobs", arrow.ListOf(f32)))
	partType = arrow.StructOf(col("name", text), col("value", f64))
)

// Columns of the layout, in the order in which they are written.
var columns = []arrow.Field{
	col("id", text), col("task_id", text), col("dataset", text), col("split", text), col("group_id", text),
	col("attempt", i32), col("seed", i64), col("policy", text), col("policy_version", i64),
	col("question", text), col("answer", arrow.ListOfNonNullable(text)), opt("extracted", text),
	col("messages", arrow.ListOfNonNullable(messageType)),
	col("steps", arrow.ListOfNonNullable(stepType)),
	col("sequences", arrow.ListOfNonNullable(sequenceType)),
	opt("reward", f64), col("reward_parts", arrow.ListOfNonNullable(partType)), opt("correct", flag),
	col("termination", text), opt("error", text),
	col("prompt_tokens", i64), col("completion_tokens", i64), col("turns", i64), col("duration_ms", i64),
	col("started_at", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}),
	col("meta", text), opt("verdict", text), opt("extraction_rule", text), opt("env", text),
}

// messagesColumn is the place of messages among the columns.
var messagesColumn = slices.IndexFunc(columns, func(f arrow.Field) bool { return f.Name == "messages" })

// Columns that a file has only where WriterConfig.Columns names them.
const (
	ColumnInfos       = "infos"          // traj.Trajectory.Infos, each as JSON text
	ColumnLossWeights = "loss_weights"   // traj.Sequence.Weights of each sequence
	ColumnExperts     = "routed_experts" // traj.Sequence.Experts of each sequence
	ColumnImages      = "images"         // traj.Trajectory.Images; the file is of version 2
)

var optional = []arrow.Field{
	opt(ColumnInfos, arrow.ListOf(text)),
	opt(ColumnLossWeights, arrow.ListOf(arrow.ListOfNonNullable(f64))),
	opt(ColumnExperts, arrow.ListOf(arrow.StructOf(col("layers", i32), col("active", i32), col("ids", arrow.BinaryTypes.Binary)))),
	opt(ColumnImages, arrow.ListOf(imageType(arrow.BinaryTypes.Binary))),
}

// columnsWith are those of a file with these optional ones, in order.
func columnsWith(names []string) ([]arrow.Field, error) {
	all := slices.Clone(columns)
	if slices.Contains(names, ColumnImages) {
		all = columnsV2(arrow.BinaryTypes.Binary)
	}
	for _, f := range optional {
		if slices.Contains(names, f.Name) {
			all = append(all, f)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(optional, func(f arrow.Field) bool { return f.Name == name }) {
			return nil, fmt.Errorf("parquet writer: %q is no optional column", name)
		}
	}
	return all, nil
}

// OptionalColumns are those of have that WriterConfig.Columns takes.
func OptionalColumns(have []string) []string {
	return slices.DeleteFunc(slices.Clone(have), func(name string) bool {
		return !slices.ContainsFunc(optional, func(f arrow.Field) bool { return f.Name == name })
	})
}

// ColumnNames are the columns of a trajectory file, in order, the optional ones last.
func ColumnNames() []string {
	var names []string
	for _, c := range slices.Concat(columns, optional) {
		names = append(names, c.Name)
	}
	return names
}

// The append functions below fill one builder each; the order of the fields is
// that of the types above.

// valid makes text fit for readers that insist on UTF-8: a reply cut in the
// middle of a character must not make the file unreadable.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func addText(b array.Builder, s string) { b.(*array.StringBuilder).Append(valid(s)) }

func addOptText(b array.Builder, s string) {
	if s == "" {
		b.AppendNull()
		return
	}
	addText(b, s)
}

func addOptFloat(b array.Builder, v *float64) {
	if v == nil {
		b.AppendNull()
		return
	}
	b.(*array.Float64Builder).Append(*v)
}

func addOptInt(b array.Builder, v *int) {
	if v == nil {
		b.AppendNull()
		return
	}
	addInt(b, *v)
}

func addInt(b array.Builder, v int) {
	if b, ok := b.(*array.Int32Builder); ok {
		b.Append(int32(v))
		return
	}
	b.(*array.Int64Builder).Append(int64(v))
}

func addMessages(b array.Builder, t *traj.Trajectory, files *files) {
	lb := b.(*array.ListBuilder)
	lb.Append(true)
	sb := lb.ValueBuilder().(*array.StructBuilder)
	for i := range t.Messages {
		m := &t.Messages[i]
		sb.Append(true)
		addText(sb.FieldBuilder(0), m.Role)
		content, places := markImages(m)
		addText(sb.FieldBuilder(1), content)
		addOptText(sb.FieldBuilder(2), m.Reasoning)
		addOptText(sb.FieldBuilder(3), m.Name)
		addOptText(sb.FieldBuilder(4), m.ToolCallID)
		cb := sb.FieldBuilder(5).(*array.ListBuilder)
		cb.Append(true)
		for _, c := range m.ToolCalls {
			s := cb.ValueBuilder().(*array.StructBuilder)
			s.Append(true)
			addText(s.FieldBuilder(0), c.ID)
			addText(s.FieldBuilder(1), c.Name)
			addText(s.FieldBuilder(2), c.Arguments)
		}
		addMessageImages(sb, t, m, places, files)
	}
}

func addSteps(b array.Builder, steps []traj.Step) {
	lb := b.(*array.ListBuilder)
	lb.Append(true)
	sb := lb.ValueBuilder().(*array.StructBuilder)
	for i := range steps {
		s := &steps[i]
		sb.Append(true)
		addInt(sb.FieldBuilder(0), s.Sequence)
		addInt(sb.FieldBuilder(1), s.Start)
		addInt(sb.FieldBuilder(2), s.End)
		addText(sb.FieldBuilder(3), s.FinishReason)
		addInt(sb.FieldBuilder(4), s.ToolCalls)
		addInt(sb.FieldBuilder(5), s.ToolErrors)
		addOptFloat(sb.FieldBuilder(6), s.Reward)
		addInt(sb.FieldBuilder(7), s.PromptTokens)
		addInt(sb.FieldBuilder(8), s.CompletionTokens)
		sb.FieldBuilder(9).(*array.Float64Builder).Append(s.ModelMS)
		sb.FieldBuilder(10).(*array.Float64Builder).Append(s.EnvMS)
		addOptText(sb.FieldBuilder(11), s.Error)
		addOptInt(sb.FieldBuilder(12), s.ToolCached)
		addOptInt(sb.FieldBuilder(13), s.ToolMalformed)
		if versions := sb.FieldBuilder(14).(*array.ListBuilder); s.PolicyVersions == nil {
			versions.AppendNull()
		} else {
			versions.Append(true)
			versions.ValueBuilder().(*array.Int64Builder).AppendValues(s.PolicyVersions, nil)
		}
	}
}

func addSequences(b array.Builder, seqs []traj.Sequence) {
	lb := b.(*array.ListBuilder)
	lb.Append(true)
	sb := lb.ValueBuilder().(*array.StructBuilder)
	for i := range seqs {
		s := &seqs[i]
		sb.Append(true)
		ids := sb.FieldBuilder(0).(*array.ListBuilder)
		ids.Append(true)
		ids.ValueBuilder().(*array.Int32Builder).AppendValues(s.TokenIDs, nil)
		mask := sb.FieldBuilder(1).(*array.ListBuilder)
		mask.Append(true)
		mask.ValueBuilder().(*array.BooleanBuilder).AppendValues(s.LossMask, nil)
		lp := sb.FieldBuilder(2).(*array.ListBuilder)
		lp.Append(true)
		fb := lp.ValueBuilder().(*array.Float32Builder)
		for _, v := range s.Logprobs {
			if math.IsNaN(float64(v)) {
				fb.AppendNull()
			} else {
				fb.Append(float32(v))
			}
		}
		if sb.NumField() > 3 {
			addSpans(sb.FieldBuilder(3), s.Images)
		}
	}
}

func addParts(b array.Builder, parts []traj.Part) {
	lb := b.(*array.ListBuilder)
	lb.Append(true)
	sb := lb.ValueBuilder().(*array.StructBuilder)
	for _, p := range parts {
		sb.Append(true)
		addText(sb.FieldBuilder(0), p.Name)
		sb.FieldBuilder(1).(*array.Float64Builder).Append(p.Value)
	}
}

// addRow appends one trajectory to the record builder; files are those of its row group, nil
// in a file without images.
func addRow(rb *array.RecordBuilder, t *traj.Trajectory, files *files) {
	f := rb.Fields()
	i := 0
	next := func() array.Builder { i++; return f[i-1] }
	for _, s := range []string{t.ID, t.Task.ID, t.Task.Dataset, t.Task.Split, t.GroupID} {
		addText(next(), s)
	}
	addInt(next(), t.Attempt)
	next().(*array.Int64Builder).Append(t.Seed)
	addText(next(), t.Policy)
	next().(*array.Int64Builder).Append(t.PolicyVersion)
	addText(next(), t.Task.Question)
	answers := next().(*array.ListBuilder)
	answers.Append(true)
	for _, a := range t.Task.Answers {
		addText(answers.ValueBuilder(), a)
	}
	if b := next(); t.Extracted == nil {
		b.AppendNull()
	} else {
		addText(b, *t.Extracted)
	}
	addMessages(next(), t, files)
	addSteps(next(), t.Steps)
	addSequences(next(), t.Sequences)
	addOptFloat(next(), t.Reward)
	addParts(next(), t.RewardParts)
	if b := next(); t.Correct == nil {
		b.AppendNull()
	} else {
		b.(*array.BooleanBuilder).Append(*t.Correct)
	}
	addText(next(), string(t.Termination))
	addOptText(next(), t.Error)
	addInt(next(), t.PromptTokens)
	addInt(next(), t.CompletionTokens)
	addInt(next(), t.Turns())
	next().(*array.Int64Builder).Append(t.DurationMS)
	next().(*array.TimestampBuilder).Append(arrow.Timestamp(t.StartedAt.UnixMicro()))
	meta := string(t.Task.Meta)
	if meta == "" {
		meta = "{}"
	}
	addText(next(), meta)
	addOptText(next(), t.Verdict)
	addOptText(next(), t.ExtractionRule)
	addOptText(next(), t.Task.Env)
	for ; i < len(f); i++ {
		switch rb.Schema().Field(i).Name {
		case ColumnInfos:
			addInfos(f[i], t)
		case ColumnLossWeights:
			addWeights(f[i], t)
		case ColumnExperts:
			addExperts(f[i], t)
		case ColumnImages:
			addImages(f[i], t, files)
		}
	}
}

// addInfos appends one entry for each step, or null where nothing is known of any.
func addInfos(b array.Builder, t *traj.Trajectory) {
	lb := b.(*array.ListBuilder)
	lb.Append(t.Infos != nil)
	if t.Infos == nil {
		return
	}
	for i := range t.Steps {
		if i >= len(t.Infos) {
			lb.ValueBuilder().AppendNull()
			continue
		}
		addOptText(lb.ValueBuilder(), string(t.Infos[i]))
	}
}

// addWeights appends a list for each sequence, null for one without weights, or null
// where none has any.
func addWeights(b array.Builder, t *traj.Trajectory) {
	lb := b.(*array.ListBuilder)
	weighs := t.Weighed()
	lb.Append(weighs)
	if !weighs {
		return
	}
	inner := lb.ValueBuilder().(*array.ListBuilder)
	for i := range t.Sequences {
		w := t.Sequences[i].Weights
		inner.Append(w != nil)
		inner.ValueBuilder().(*array.Float64Builder).AppendValues(w, nil)
	}
}

// addExperts appends a struct for each sequence, null for one whose experts are not known, or null
// where none of any are.
func addExperts(b array.Builder, t *traj.Trajectory) {
	lb := b.(*array.ListBuilder)
	has := t.HasExperts()
	lb.Append(has)
	if !has {
		return
	}
	sb := lb.ValueBuilder().(*array.StructBuilder)
	for i := range t.Sequences {
		e := t.Sequences[i].Experts
		if e.Tokens() == 0 {
			sb.AppendNull()
			continue
		}
		sb.Append(true)
		addInt(sb.FieldBuilder(0), e.Layers)
		addInt(sb.FieldBuilder(1), e.Active)
		sb.FieldBuilder(2).(*array.BinaryBuilder).Append(e.IDs.Bytes())
	}
}

// sizeOf estimates the memory that a row takes in the builders, without its images.
func sizeOf(t *traj.Trajectory) int64 {
	n := 512 + len(t.Task.Question) + len(t.Task.Meta) + len(t.Error)
	for i := range t.Messages {
		m := &t.Messages[i]
		n += 64 + len(m.Content) + len(m.Reasoning)
		for _, c := range m.ToolCalls {
			n += 32 + len(c.Arguments)
		}
		for _, im := range m.Images {
			n += 32 + len(im.Path)
		}
	}
	for i := range t.Sequences {
		n += 9*len(t.Sequences[i].TokenIDs) + 8*len(t.Sequences[i].Weights)
		if e := t.Sequences[i].Experts; e != nil {
			n += 2 * len(e.IDs)
		}
	}
	for i := range t.Infos {
		n += 16 + len(t.Infos[i])
	}
	return int64(n + 128*len(t.Steps))
}
