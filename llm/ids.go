package llm

import "bytes"

// tokenIDs are the ids that a server returns beside a reply: those of the prompt
// and those that were sampled, vLLM's and SGLang's shape.
type tokenIDs struct{ prompt, sampled []int32 }

// takeIDs reads the arrays prompt_token_ids (of the reply or of its first
// choice) and token_ids (of its first choice) and puts null in their place.
// Every reply of a long conversation holds the whole prompt's ids: read twice by
// encoding/json they would be most of the work. What is not as expected is left
// for encoding/json to complain about.
func takeIDs(body []byte) ([]byte, tokenIDs) {
	var ids tokenIDs
	if !bytes.Contains(body, []byte(`token_ids"`)) {
		return body, ids
	}
	out := make([]byte, 0, 4<<10)
	copied := 0
	var stack [4]byte // what is open: '{' or '['
	depth, choice := 0, 0
	inChoices := false
	var key []byte // the last string that ended
	for i := 0; i < len(body); {
		switch c := body[i]; c {
		case '"':
			end := stringEnd(body, i+1)
			if end < 0 {
				return body, tokenIDs{}
			}
			key = body[i+1 : end]
			i = end + 1
		case '{', '[':
			if depth < len(stack) {
				stack[depth] = c
			}
			depth++
			i++
		case '}', ']':
			depth--
			if depth < 0 {
				return body, tokenIDs{}
			}
			if depth == 1 {
				inChoices = false
			}
			i++
		case ',':
			if depth == 2 && inChoices {
				choice++
			}
			i++
		case ':':
			i++
			for i < len(body) && (body[i] == ' ' || body[i] == '\n' || body[i] == '\t' || body[i] == '\r') {
				i++
			}
			if depth == 1 && string(key) == "choices" && i < len(body) && body[i] == '[' {
				inChoices, choice = true, 0
			}
			first := depth == 3 && inChoices && choice == 0 && stack[2] == '{'
			var to *[]int32
			switch {
			case string(key) == "prompt_token_ids" && (first || depth == 1):
				to = &ids.prompt
			case string(key) == "token_ids" && first:
				to = &ids.sampled
			}
			if to == nil || i >= len(body) || body[i] != '[' {
				continue
			}
			list, n := integers(body[i:])
			if n < 0 {
				continue
			}
			if len(list) > 0 {
				*to = list
			}
			out = append(append(out, body[copied:i]...), "null"...)
			i += n
			copied = i
		default:
			i++
		}
	}
	if depth != 0 {
		return body, tokenIDs{}
	}
	return append(out, body[copied:]...), ids
}

// stringEnd is the index of the quote that ends the string from i on, or -1.
func stringEnd(b []byte, i int) int {
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for k := i - 1; k >= 0 && b[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		i++
	}
}

// integers reads a JSON array of numbers that fit an int32, and its length in
// bytes; -1 if it is anything else.
func integers(b []byte) ([]int32, int) {
	list := make([]int32, 0, bytes.IndexByte(b, ']')/4+1)
	comma := true // one may be followed by a number
	for i := 1; i < len(b); {
		switch c := b[i]; {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			i++
		case c == ',':
			if comma {
				return nil, -1
			}
			comma = true
			i++
		case c == ']':
			if comma && len(list) > 0 {
				return nil, -1
			}
			return list, i + 1
		case c >= '0' && c <= '9' && comma:
			from, v := i, int64(0)
			for ; i < len(b) && b[i] >= '0' && b[i] <= '9' && i-from < 11; i++ {
				v = v*10 + int64(b[i]-'0')
			}
			if v > 1<<31-1 || (b[from] == '0' && i-from > 1) {
				return nil, -1
			}
			list, comma = append(list, int32(v)), false
		default:
			return nil, -1
		}
	}
	return nil, -1
}
