// Command tokenizer is our half of bench/tokenizer.sh: it encodes and decodes
// the texts that the tokenizers library did, compares and prints a line of the
// table.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"agentcli/model/tokenizer"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: tokenizer TOKENIZER.json TEXTS.jsonl IDS")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "tokenizer:", err)
		os.Exit(1)
	}
}

func run(path, texts, ids string) error {
	tok, err := tokenizer.Open(path)
	if err != nil {
		return err
	}
	var docs []string
	if docs, err = readTexts(texts); err != nil {
		return err
	}
	var peer struct {
		Encode, Decode float64
		Text           []string
	}
	b, err := os.ReadFile(ids + ".json")
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &peer); err != nil {
		return err
	}
	want, err := readIDs(ids)
	if err != nil {
		return err
	}
	size := 0
	got, back := make([][]int32, len(docs)), make([]string, len(docs))
	start := time.Now()
	for i, d := range docs {
		got[i] = tok.Encode(d, false)
		size += len(d)
	}
	encode := time.Since(start).Seconds()
	start = time.Now()
	for i := range docs {
		back[i] = tok.Decode(want[i], false)
	}
	decode := time.Since(start).Seconds()
	equal := "all"
	for i := range docs {
		if !slices.Equal(got[i], want[i]) || back[i] != peer.Text[i] {
			equal = fmt.Sprintf("no, document %d: ids %v, text %v", i, slices.Equal(got[i], want[i]), back[i] == peer.Text[i])
			break
		}
	}
	mb := float64(size) / 1e6
	text := filepath.Base(texts)
	fmt.Printf("%-14s %-10s %9.1f %12.1f %8.1f %12.1f %8.1f  %s\n", filepath.Base(filepath.Dir(path)), text[:len(text)-len(".jsonl")],
		mb, mb/encode, peer.Encode/encode, mb/decode, peer.Decode/decode, equal)
	return nil
}

func readTexts(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var docs []string
	for dec := json.NewDecoder(bufio.NewReader(f)); dec.More(); {
		var s string
		if err := dec.Decode(&s); err != nil {
			return nil, err
		}
		docs = append(docs, s)
	}
	return docs, nil
}

func readIDs(path string) ([][]int32, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out [][]int32
	for len(b) > 0 {
		n := binary.LittleEndian.Uint32(b)
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32(binary.LittleEndian.Uint32(b[4+4*i:]))
		}
		out = append(out, ids)
		b = b[4+4*n:]
	}
	return out, nil
}
