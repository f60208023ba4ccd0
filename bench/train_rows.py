"""The file of bench/train.sh whose rows share nothing.

    python bench/train_rows.py prompts OUT.jsonl N      prompts for `agentcli rollout -d`
    python bench/train_rows.py groups IN.parquet OUT.parquet

prompts: N chats, no two of which begin alike, that ask for replies of many
lengths. groups: eight replies to eight prompts make a group, so that advantages
exist; the reward is the share of different tokens among the reply's. What is
learned is of no use: this file is there to be computed with.
"""
import json, sys

TOPICS = ("rivers", "bread", "the moon", "trains", "bees", "chess", "glass", "winter", "maps", "whales", "paper", "bridges", "salt", "clocks", "forests", "lightning")
FORMS = ("Name one fact about {}.", "What are {}? Answer in two sentences.", "Write a short paragraph about {}.", "Explain to a child why {} matter.",
         "Write a story about {}.", "Give a detailed history of {}, with dates.", "List ten things that one should know about {}, each with a reason.", "Write a poem on {}.")

if sys.argv[1] == "prompts":
    with open(sys.argv[2], "w") as f:
        for i in range(int(sys.argv[3])):
            topic, form = TOPICS[i % len(TOPICS)], FORMS[i // 2 % len(FORMS)]
            chat = [{"role": "system", "content": f"{1000 + 7919 * i} is the number of this request."}, {"role": "user", "content": form.format(topic)}]
            print(json.dumps({"id": f"r{i}", "messages": chat, "answer": "-"}), file=f)
else:
    import pyarrow as pa, pyarrow.parquet as pq

    t = pq.read_table(sys.argv[2])
    rewards = []
    for seqs in t["sequences"].to_pylist():
        ids = [x for s in seqs for x, own in zip(s["token_ids"], s["loss_mask"]) if own]
        rewards.append(len(set(ids)) / max(len(ids), 1))
    for name, col in (("reward", pa.array(rewards, pa.float64())), ("group_id", pa.array([f"g{i // 8}" for i in range(t.num_rows)]))):
        t = t.set_column(t.column_names.index(name), name, col.cast(t.schema.field(name).type))
    pq.write_table(t, sys.argv[3])
