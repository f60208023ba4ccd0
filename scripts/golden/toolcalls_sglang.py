"""What SGLang's parsers read of the golden replies, next to what was rendered.

    python scripts/golden/toolcalls_sglang.py SGLANG

SGLANG is the unpacked wheel of sglang 0.5.23. Its package needs a GPU's libraries, so all of
it but function_call is stubbed; pydantic, orjson and partial_json_parser are real. Prints the
replies that SGLang reads in another way. Writes nothing.
"""
import importlib, importlib.abc, importlib.util, json, os, re, sys, types
ROOT = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
class Anything(types.ModuleType):
    __path__=[]
    def __getattr__(self,n):
        if n.startswith("__"): raise AttributeError(n)
        return type(n,(),{"__class_getitem__":classmethod(lambda c,k:c)})
class Finder(importlib.abc.MetaPathFinder,importlib.abc.Loader):
    def find_spec(self,name,path,target=None):
        if name.startswith("sglang") and not name.startswith("sglang.srt.function_call") or name.split(".")[0] in("torch","xgrammar","llguidance"):
            return importlib.util.spec_from_loader(name,self,is_package=True)
    def create_module(self,spec): return Anything(spec.name)
    def exec_module(self,m): pass
sys.meta_path.insert(0,Finder())
import sglang.srt
m=types.ModuleType("sglang.srt.function_call"); m.__path__=[ROOT+"/sglang/srt/function_call"]; sys.modules[m.__name__]=m
from pydantic import BaseModel
from typing import Any,Optional
class F(BaseModel):
    name:str; description:Optional[str]=None; parameters:Optional[Any]=None; strict:bool=False
class Tool(BaseModel):
    type:str="function"; function:F
import sglang.srt.entrypoints.openai.protocol as pr
pr.Tool=Tool
g=json.load(open(os.path.join(HERE, "..", "..", "model", "chat", "testdata", "toolcalls.json"), encoding="utf-8"))
tools=[Tool(**t) for t in g["tools"]]
D={"minimax":("minimax_m2","MinimaxM2Detector"),"deepseek-v3.2":("deepseekv32_detector","DeepSeekV32Detector"),"cohere":("cohere_command4_detector","CohereCommand4Detector"),
 "apertus":("apertus2509_detector","Apertus2509Detector"),"kimi":("kimik2_detector","KimiK2Detector"),"deepseek-v3":("deepseekv31_detector","DeepSeekV31Detector"),"v4":("deepseekv4_detector","DeepSeekV4Detector")}
for fam,(mod,cls) in D.items():
    try: M=importlib.import_module("sglang.srt.function_call."+mod); C=getattr(M,cls)
    except Exception as e: print(fam,"import",repr(e)[:200]); continue
    n=ok=0
    for r in g["rows"]:
        want="deepseek-v3.2" if fam=="v4" else fam
        if r["family"]!=want or not r["calls"] or ("V4" in r["from"])!=(fam=="v4"): continue
        text=re.sub(r"^.*?</think>","",r["reply"],flags=re.S)
        n+=1
        try:
            res=C().detect_and_parse(text,tools)
            got=[(c.name,json.loads(c.parameters)) for c in res.calls]
        except Exception as e: got=repr(e)[:150]
        exp=[(c["name"],c["arguments"]) for c in r["calls"]]
        if got==exp: ok+=1
        else: print(fam,"differs\n  sglang",str(got)[:260],"\n  ours  ",str(exp)[:260])
    print(fam,ok,"of",n)
