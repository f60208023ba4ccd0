// Greedy tokens of llama.cpp: node greedy.mjs PROMPT N FILE.gguf... prints a JSON
// line for each file.
import {getLlama} from "node-llama-cpp";

const [prompt, n, ...files] = process.argv.slice(2);
const llama = await getLlama({gpu: false, build: "never", maxThreads: 2, logLevel: "error"});
for (const modelPath of files) {
  const model = await llama.loadModel({modelPath, gpuLayers: 0});
  const context = await model.createContext({contextSize: 512});
  const ids = model.tokenize(prompt, false);
  const out = [];
  for await (const t of context.getSequence().evaluate(ids, {temperature: 0, topK: 1})) {
    out.push(t);
    if (out.length >= Number(n)) break;
  }
  console.log(JSON.stringify({ids: [...ids], out}));
  await context.dispose();
  await model.dispose();
}
process.exit(0);
