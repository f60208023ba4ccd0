package models

import (
	"encoding/json"

	"agentcli/internal/setting"
	"agentcli/llm"
	"agentcli/media/processor"
	"agentcli/media/qwen"
	"agentcli/model/chat"
	"agentcli/model/tokenizer"
	"agentcli/policy"
)

// placeChatImages has the images found in the prompts of a server that is asked in messages, by
// the tokenizer and the image processor of a model's folder.
func placeChatImages(client *llm.Client, source *Source, folder string, o Options) error {
	tok, err := tokenizer.Open(folder)
	if err == nil {
		err = placeImages(client, source, folder, tok, tok.Hash(), o)
	}
	if err != nil {
		return setting.Errorf("%s %s: %w", setting.Name("Tokenizer"), folder, err)
	}
	return nil
}

// placeImages has the images found in the prompts of chat replies, as the model in folder shows
// them.
func placeImages(client *llm.Client, source *Source, folder string, tok chat.Tokenizer, hash string, o Options) error {
	v, err := Vision(folder)
	if err != nil {
		return err
	}
	images, err := policy.OpenProcessor(folder, v, o.MinPixels, o.MaxPixels)
	if err != nil {
		return err
	}
	client.PlaceImages(&llm.ImagePlaces{Start: v.StartToken, Token: v.ImageToken, End: v.EndToken, Grid: images.Grid,
		Words: func(ids []int32) string { return tok.Decode(ids, false) }, Ordinary: tok.EncodeOrdinary})
	source.Images, source.ImageRule = images, json.RawMessage(images.Rule())
	source.TokenizerHash = hash
	return nil
}

// gridOf is the grid of an image and its tokens; of no processor, Qwen2.5-VL's.
func gridOf(images *processor.Processor, width, height int) (grid [3]int, tokens int, err error) {
	if images == nil {
		images = processor.New(qwen.DefaultConfig())
	}
	return images.Grid(width, height)
}
