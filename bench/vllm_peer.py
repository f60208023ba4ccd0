"""What vLLM does on this machine's CPU: the decoding of bench/peers.py.

    python bench/vllm_peer.py FOLDER [--dtype bfloat16] [--repeats 5]

FOLDER is a model in Hugging Face's layout, and python is the one in the venv that
bench/vllm.sh makes. Prints one JSON object: tokens a second of 7 + 64 tokens at batch
1, 8, 32 and 128, the time of the prompts being part of it, each the median of several
repeats after a warm-up, and `runs` with all of them.
"""
import argparse, json, os, statistics, sys, time

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import vllm
from vllm import LLM, SamplingParams


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("folder")
    p.add_argument("--dtype", default="bfloat16")
    p.add_argument("--repeats", type=int, default=5)
    a = p.parse_args()
    m = LLM(a.folder, dtype=a.dtype, max_model_len=2048, skip_tokenizer_init=True,
            disable_log_stats=True, max_num_seqs=128)
    how = SamplingParams(temperature=1.0, max_tokens=64, min_tokens=64, ignore_eos=True, detokenize=False)
    out, runs = {}, {}
    for batch in (1, 8, 32, 128):
        prompts = [{"prompt_token_ids": [1, 4093, 198, 1000 + i, 1724, 314, 216]} for i in range(batch)]

        def work():
            t = time.perf_counter()
            got = m.generate(prompts, how, use_tqdm=False)
            assert all(len(r.outputs[0].token_ids) == 64 for r in got)
            return batch * 64 / (time.perf_counter() - t)

        work()
        runs[batch] = [round(work(), 2) for _ in range(a.repeats)]
        out[f"decode batch={batch}"] = statistics.median(runs[batch])
        print(f"vllm {a.dtype} decode {batch}: {out[f'decode batch={batch}']:.1f}", file=sys.stderr)
    print(json.dumps({"vllm": vllm.__version__, a.dtype: out, "runs": runs}))


if __name__ == "__main__":
    main()
