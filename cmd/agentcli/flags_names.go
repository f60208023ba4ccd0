package main

import (
	"strings"

	"agentcli/internal/setting"
)

// otherWords are the settings that libraries name otherwise than their flags are called,
// and functions that are commands.
var otherWords = map[setting.Name]string{
	"Adapters":         "--adapter",
	"Admin":            "--admin",
	"AsStored":         "--weights-as-stored",
	"AllowMediaHosts":  "--allow-media-host",
	"AllowMediaPath":   "--allow-media-path",
	"AllowPath":        "--allow-path",
	"Against":          "--against",
	"B":                "--b",
	"BoxSpace":         "--bbox-space",
	"BestOf":           "--best-of",
	"Correct":          "--correct",
	"Dedup":            "--dedup",
	"K1":               "--k1",
	"Kind":             "--kind",
	"MaxImages":        "--max-images",
	"MaxImageBytes":    "--max-image-bytes",
	"MaxImagePixels":   "--max-image-pixels",
	"MaxPixels":        "--max-pixels",
	"MinPixels":        "--min-pixels",
	"Resize":           "--resize",
	"Listen":           "--listen",
	"MaxPerTask":       "--max-per-task",
	"MinReward":        "--min-reward",
	"Beta1":            "--betas",
	"SkipBad":          "--skip-bad-steps",
	"BestEffort":       "--sandbox best-effort",
	"Budget.PriceIn":   "--price-in",
	"Budget.PriceOut":  "--price-out",
	"Cache":            "--tool-cache",
	"CacheAlso":        "--tool-cache-also",
	"Fields":           "--field",
	"File":             "-o",
	"Grader":           "--reward-options",
	"Held.Dataset":     "--eval-dataset",
	"Held.Part":        "--holdout",
	"Held.Split":       "--eval-split",
	"Images":           "--images",
	"ImageFiles":       "--images",
	"InText":           "--parser hermes",
	"Port":             "--port",
	"Replace":          "--force",
	"Search":           "--search",
	"Serve.Candidates": "--topk-retrieval",
	"Serve.Host":       "--host",
	"Serve.Rerank":     "--rerank",
	"Serve.TopK":       "--topk",
	"Serve.Web":        "--web",
	"Vision":           "--train-vision",
	"Web.Address":      "--web-url",
	"Session":          "--python-session",
	"datasets.Import":  "agentcli datasets import",
	"datasets.Pull":    "agentcli datasets pull",
	"journal.Cat":      "agentcli journal cat",
	"journal.Open":     "--resume",
	"bm25.Write":       "agentcli retriever index",
	"server.Serve":     "agentcli retriever serve",
	"llm.Tokens":       "--token-mode completions",
}

// onCommandLine words a setting that a library names as a flag: the wording that execute
// gives to setting.Reword. LoRA.Alpha is --lora-alpha.
func onCommandLine(n setting.Name) string {
	if words, ok := otherWords[n]; ok {
		return words
	}
	plain := strings.ToLower(strings.NewReplacer(".", "", "-", "").Replace(string(n)))
	for _, s := range newOptions().table() {
		if strings.ReplaceAll(s.name, "-", "") == plain {
			return "--" + s.name
		}
	}
	return string(n)
}
