"""Compares BM25 of `agentcli retriever` with Pyserini, which is Lucene: passages, order and scores.

usage: pyserini_peer.py CORPUS QUERIES WORK AGENTCLI [PASSAGES] [K1 B]

CORPUS is .jsonl of id and contents; QUERIES has one a line. WORK is an empty folder. It needs
pyserini 0.22.1 (pip install --no-deps pyserini==0.22.1; then Cython pyjnius numpy pandas tqdm
requests pyyaml transformers onnxruntime scipy scikit-learn) and Java 11 or 17. What Pyserini
imports for dense vectors is left out.

Two lists of the best K are the same up to ties if their scores are, and if each passage above
the last score is in both. Anserini rounds scores to four digits and lowers equal ones by a
millionth each, so that scores count as equal within 0.0001.
"""
import glob, json, os, subprocess, sys, time, types, urllib.request

corpus, queries, work, agentcli = sys.argv[1:5]
limit = int(sys.argv[5]) if len(sys.argv) > 5 else 10**9
k1, b = (float(sys.argv[6]), float(sys.argv[7])) if len(sys.argv) > 7 else (0.9, 0.4)
K = 10
ROUNDING = 1e-4


class Absent(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


for name in ("pyserini.encode", "pyserini.search.lucene._impact_searcher", "pyserini.search.faiss", "pyserini.vectorizer"):
    sys.modules[name] = Absent(name)
import pyserini
from pyserini.search.lucene import LuceneSearcher

os.makedirs(os.path.join(work, "corpus"))
path = os.path.join(work, "corpus", "corpus.jsonl")
n = 0
with open(corpus, encoding="utf-8") as source, open(path, "w", encoding="utf-8") as out:
    for line in source:
        if n == limit:
            break
        row = json.loads(line)
        out.write(json.dumps({"id": str(row.get("id", n)), "contents": row["contents"]}) + "\n")
        n += 1
with open(queries, encoding="utf-8") as f:
    asked = [q for q in f.read().splitlines() if q.strip()]

jar, = glob.glob(os.path.join(os.path.dirname(pyserini.__file__), "resources/jars/anserini-*-fatjar.jar"))
began = time.time()
subprocess.run([os.path.join(os.environ["JAVA_HOME"], "bin/java"), "-cp", jar, "io.anserini.index.IndexCollection",
                "-collection", "JsonCollection", "-input", os.path.join(work, "corpus"), "-index", os.path.join(work, "lucene"),
                "-generator", "DefaultLuceneDocumentGenerator", "-threads", "2"],
               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
their_build = time.time() - began
searcher = LuceneSearcher(os.path.join(work, "lucene"))
searcher.set_bm25(k1, b)
searcher.search(asked[0])
theirs, their_times = [], []
for q in asked:
    began = time.time()
    hits = searcher.search(q, k=K)
    their_times.append(time.time() - began)
    theirs.append([(h.docid, h.score) for h in hits])

began = time.time()
subprocess.run([agentcli, "retriever", "index", path, "-o", os.path.join(work, "index"), "--k1", str(k1), "--b", str(b)],
               check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
our_build = time.time() - began
server = subprocess.Popen([agentcli, "retriever", "serve", os.path.join(work, "index"), "--port", "0"], stderr=subprocess.PIPE, text=True)
ours, our_times = [], []
try:
    line = server.stderr.readline()
    url = next(word for word in line.replace(";", " ").split() if word.startswith("http://"))
    for q in asked:
        body = json.dumps({"queries": [q], "topk": K, "return_scores": True}).encode()
        began = time.time()
        with urllib.request.urlopen(urllib.request.Request(url, body, {"Content-Type": "application/json"})) as r:
            answer = json.load(r)
        our_times.append(time.time() - began)
        ours.append([(h["document"]["id"], h["score"]) for h in answer["result"][0]])
finally:
    server.terminate()
    server.wait()


def same(a, b):
    if len(a) != len(b) or any(abs(x[1] - y[1]) > ROUNDING for x, y in zip(a, b)):
        return False
    if not a:
        return True
    last = max(a[-1][1], b[-1][1]) + ROUNDING
    of_a, of_b = {d for d, _ in a}, {d for d, _ in b}
    return {d for d, s in a if s > last} <= of_b and {d for d, s in b if s > last} <= of_a


def overlap(k):
    return sum(len({d for d, _ in a[:k]} & {d for d, _ in b[:k]}) for a, b in zip(ours, theirs)) / max(1, sum(len(b[:k]) for b in theirs))


different = [i for i, (a, t) in enumerate(zip(ours, theirs)) if not same(a, t)]
apart = max((abs(x[1] - y[1]) for a, t in zip(ours, theirs) for x, y in zip(a, t)), default=0)
middle = lambda times: 1000 * sorted(times)[len(times) // 2]
print(json.dumps({"passages": n, "queries": len(asked), "k1": k1, "b": b, "same up to ties": len(asked) - len(different),
                  "largest difference of scores": round(apart, 6), "recall@3": round(overlap(3), 4), "recall@10": round(overlap(10), 4),
                  "build s": [round(our_build, 1), round(their_build, 1)],
                  "p50 ms": [round(middle(our_times), 2), round(middle(their_times), 2)]}))
for i in different[:10]:
    print("differs:", asked[i], ours[i][:4], theirs[i][:4], sep="\n  ")
