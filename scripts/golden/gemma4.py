"""Make model/arch/archtest/families_gemma4.json.gz: what families.py makes, of Gemma 4.

usage: python scripts/golden/gemma4.py   (transformers 5.23, torch 2.11)
"""

from families import VOCAB, main

BASE = dict(num_hidden_layers=6, global_head_dim=16, vocab_size_per_layer_input=VOCAB + 4, hidden_size_per_layer_input=0, sliding_window=9,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2)
EXPERTS = dict(enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=12)
MODELS = [
    ("gemma4", BASE),
    ("gemma4 with a wide window, biases and a cap", dict(BASE, sliding_window=200, attention_bias=True, final_logit_softcapping=0.5)),
    ("gemma4 with inputs of layers and shared keys", dict(  # as E2B
        BASE, hidden_size_per_layer_input=8, num_kv_shared_layers=3, use_double_wide_mlp=True, final_logit_softcapping=30.0,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                     "full_attention"])),
    ("gemma4 with experts and keys that are values", dict(  # as 26B-A4B
        BASE, **EXPERTS, attention_k_eq_v=True, num_global_key_value_heads=1, use_bidirectional_attention="vision",
        final_logit_softcapping=30.0)),
    ("gemma4 with all of it, untied", dict(
        BASE, **EXPERTS, attention_k_eq_v=True, num_kv_shared_layers=2, hidden_size_per_layer_input=8, tie_word_embeddings=False,
        final_logit_softcapping=1.0, num_hidden_layers=5, layer_types=["full_attention", "sliding_attention"] * 2 + ["full_attention"],
        rope_parameters={
            "full_attention": dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=1000000.0, factor=4.0),
            "sliding_attention": dict(rope_type="linear", rope_theta=10000.0, factor=2.0)})),
]

ALL = [(title, "gemma4_text", extra) for title, extra in MODELS]

if __name__ == "__main__":
    main(ALL, "families_gemma4.json.gz")
