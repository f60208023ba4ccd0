"""Golden numbers for package trainer/algo.

    python scripts/golden/rl.py

Made with TRL 1.16.0 (transformers 5.23.0, torch 2.11.0): the losses of its
GRPOTrainer are computed by its own _compute_loss, called on log-probs instead of
a model, and differentiated by autograd. What TRL lacks is written here a second
time, in torch (differentiated) or numpy, from the papers' formulas. float64.
Writes trainer/algo/testdata/rl.json.
"""
import json, math, os
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import torch
from trl.trainer.grpo_trainer import GRPOTrainer

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "..", "trainer", "algo", "testdata", "rl.json")
torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(7)

B, T = 4, 7
mask = np.array([[1, 1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 1, 1, 0], [0, 0, 1, 0, 0, 0, 0], [1, 0, 1, 0, 1, 0, 1]], float)
old = -3 * rng.random((B, T))
lp = np.minimum(old + .5 * rng.standard_normal((B, T)), -.01)
roll = old + .4 * rng.standard_normal((B, T))
ref = lp + .3 * rng.standard_normal((B, T))
adv = np.array([1.3, -.7, .4, -1.1])
ADV = np.repeat(adv[:, None], T, 1)


def trl(loss_type, level="token", beta=0.0, eps=(.2, .28), delta=None, correction=None):
    x = torch.tensor(lp, requires_grad=True)
    ratio = None
    inputs = dict(prompt_ids=torch.zeros(B, 1, dtype=torch.long), prompt_mask=torch.ones(B, 1), completion_ids=torch.zeros(B, T, dtype=torch.long),
                  completion_mask=torch.ones(B, T), tool_mask=torch.tensor(mask), advantages=torch.tensor(adv), old_per_token_logps=torch.tensor(old),
                  ref_per_token_logps=torch.tensor(ref), num_items_in_batch=torch.tensor(mask.sum()))
    if correction is not None:  # the steps of _generate_and_score_completions
        mode, lo, hi = correction
        d = torch.tensor((old - roll) * mask)
        logs = d.sum(-1, keepdim=True) if mode.startswith("sequence") else d
        ratio = torch.exp(logs)
        if mode.endswith("truncate"):
            ratio = torch.clamp(ratio, min=lo, max=hi)
        else:
            ratio = ratio.masked_fill((ratio < lo) | (ratio > hi), 0.0)
        inputs["importance_sampling_ratio"] = ratio
    me = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *a, **k: (x, torch.zeros(B, T), None), aux_loss_enabled=False, top_entropy_quantile=1.0,
        off_policy_mask_threshold=None, importance_sampling_level=level, beta=beta, epsilon_low=eps[0], epsilon_high=eps[1], loss_type=loss_type,
        args=SimpleNamespace(use_bias_correction_kl=False, delta=delta, sapo_temperature_pos=1.0, sapo_temperature_neg=1.05, steps_per_generation=1),
        use_vllm=correction is not None, vllm_importance_sampling_correction=correction is not None, model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1, max_completion_length=8, _entropy_bonus_enabled=False, _metrics=defaultdict(lambda: defaultdict(list)),
        accelerator=SimpleNamespace(num_processes=1, reduce=lambda t, **k: t, gather=lambda t: t))
    loss = GRPOTrainer._compute_loss(me, None, inputs)
    loss.backward()
    return {"loss": loss.item(), "grad": x.grad.tolist()}


def ours(per_token, aggregation="token-mean", weight=None):
    """per_token(lp) -> [B, T] losses, aggregated over the mask."""
    x = torch.tensor(lp, requires_grad=True)
    l = per_token(x) * torch.tensor(mask)
    if weight is not None:
        l = l * torch.tensor(weight)
    n = torch.tensor(mask.sum(1))
    loss = l.sum() / n.sum() if aggregation == "token-mean" else (l.sum(1) / n).mean()
    loss.backward()
    return {"loss": loss.item(), "grad": x.grad.tolist()}


A, OLD, ROLL, REF, M = (torch.tensor(v) for v in (ADV, old, roll, ref, mask))


def gmpo(x, eps=.2):
    d = x - OLD
    sign = torch.sign(A)
    kept = sign * torch.minimum(sign * d, sign * torch.clamp(d, -eps, eps))
    g = torch.exp((kept * M).sum(1) / M.sum(1))
    return (-torch.tensor(adv) * g)[:, None].expand(B, T)


def dppo(x, both):
    moved = (torch.exp(x) - torch.exp(ROLL)).detach()
    drop = moved.abs() > .2 if both else torch.where(A > 0, moved > .2, moved < -.2)
    return torch.where(drop, torch.zeros_like(x), -A * torch.exp(x - ROLL)) + 1e-3 * (x - ROLL) ** 2


def straight(value, x):
    k2 = .5 * (x - REF) ** 2
    return value.detach() + k2 - k2.detach()


K1 = lambda x: x - REF
K3 = lambda x: torch.exp(REF - x) - (REF - x) - 1

losses = {
    "ppo token-mean": trl("dapo"),
    "ppo seq-mean-token-mean": trl("grpo"),
    "ppo seq-mean-token-sum-norm": trl("dr_grpo"),
    "ppo dual": trl("dapo", delta=1.4),
    "ppo kl": trl("dapo", beta=.07),
    "gspo": trl("grpo", level="sequence"),
    "cispo": trl("cispo", eps=(1.0, 1.2)),
    "sapo": trl("sapo"),
    "tis": trl("dapo", correction=("token_truncate", .8, 1.2)),
    "icepop": trl("dapo", correction=("token_mask", .8, 1.2)),
    "tis-seq": trl("dapo", correction=("sequence_truncate", .8, 1.2)),
    "gmpo": ours(gmpo, "seq-mean-token-mean"),
    "reinforce": ours(lambda x: -A * x),
    "dppo": ours(lambda x: dppo(x, False)),
    "ipo": ours(lambda x: dppo(x, True)),
    "k1": ours(K1), "k2": ours(lambda x: .5 * (x - REF) ** 2), "k3": ours(K3),
    "k1+": ours(lambda x: straight(K1(x), x)), "k3+": ours(lambda x: straight(K3(x), x)),
}

# The critic: values, old values and returns on the same mask.
v, vold, ret = (rng.standard_normal((B, T)) for _ in range(3))
values = {}
for clip in (0, .3):
    x = torch.tensor(v, requires_grad=True)
    l = .5 * (x - torch.tensor(ret)) ** 2
    if clip:
        c = torch.tensor(vold) + torch.clamp(x - torch.tensor(vold), -clip, clip)
        l = torch.maximum(l, .5 * (c - torch.tensor(ret)) ** 2)
    loss = (l * M).sum() / M.sum()
    loss.backward()
    values[str(clip)] = {"loss": loss.item(), "grad": x.grad.tolist()}

# Advantages: three groups of rows with token rewards, over the sampled tokens only.
groups = [[[0, 0, 1.0], [0, .5], [0, 0, 0, 0]], [[2.0], [0, -1.0]], [[.25, 0, .25], [.5], [0, .5], [0, 0, 0, .5]]]
S = [[sum(r) for r in g] for g in groups]
rep = lambda a: [[[x] * len(r) for x, r in zip(ga, g)] for ga, g in zip(a, groups)]
sd = lambda g: np.std(g, ddof=1)


def flat(a):
    return np.array([x for g in a for r in g for x in r])


def whitened(a):
    f = flat(a)
    w = (f - f.mean()) / np.sqrt(f.var(ddof=1) + 1e-8)
    it = iter(w.tolist())
    return [[[next(it) for _ in r] for r in g] for g in a]


def returns(r, gamma):
    out, run = [], 0.0
    for x in reversed(r):
        run = x + gamma * run
        out.append(run)
    return out[::-1]


def centred(norm):
    return [[(s - np.mean(g)) / norm(g) if np.ptp(g) else 0.0 for s in g] for g in S]


def passk(g):
    o = sorted(g, reverse=True)
    return [(o[0] - o[1]) / (sd(g) + 1e-6) if i == int(np.argmax(g)) else 0.0 for i in range(len(g))]


def opo(g, rows):
    b = sum(len(r) * s for r, s in zip(rows, g)) / sum(len(r) for r in rows)
    return [s - b if np.ptp(g) else 0.0 for s in g]


n_rows, nonzero = sum(map(len, S)), sum(s != 0 for g in S for s in g)
parts = [[[.2, 1], [.4, 0], [0, 0]], [[1, 3], [1, -1]], [[0, 1], [.5, 1], [.1, 1], [.2, 1]]]
weights = [1, .5]


def gdpo():
    sums = []
    for g in parts:
        tot = np.zeros(len(g))
        for k in range(2):
            x = np.array([p[k] for p in g], float)
            if np.ptp(x):
                tot += weights[k] * (x - x.mean()) / (x.std(ddof=1) + 1e-6)
        sums.append(tot)
    f = np.concatenate(sums)
    w = (f - f.mean()) / np.sqrt(f.var(ddof=1) + 1e-8)
    it = iter(w.tolist())
    return rep([[next(it) for _ in g] for g in parts])


roles = [["a", "b", "a"], ["b", "b"], ["a", "c", "a", "b"]]
def rae():
    base, out = defaultdict(float), []
    for g, rs in zip(S, roles):
        row = []
        for s, r in zip(g, rs):
            row.append(s - base[r])
            base[r] = .95 * base[r] + .05 * s
        out.append(row)
    return rep(out)


greedy = [1.0, .5, 0.0]
crit = [[[float(x) for x in rng.standard_normal(len(r))] for r in g] for g in groups]


def gae(gamma, lam):
    """Written as the sum it stands for: A_t = sum_k (gamma lam)^k delta_{t+k}."""
    adv, ret = [], []
    for g, vg in zip(groups, crit):
        a_g, r_g = [], []
        for r, vv in zip(g, vg):
            n = len(r)
            delta = [r[t] + gamma * (vv[t + 1] if t + 1 < n else 0) - vv[t] for t in range(n)]
            a = [sum((gamma * lam) ** k * delta[t + k] for k in range(n - t)) for t in range(n)]
            a_g.append(a)
            r_g.append([x + y for x, y in zip(a, vv)])
        adv.append(a_g)
        ret.append(r_g)
    return whitened(adv), ret


g_adv, g_ret = gae(.9, .8)
estimators = {
    "grpo": rep(centred(lambda g: sd(g) + 1e-6)),
    "grpo_batch": rep(centred(lambda g: sd([s for x in S for s in x]) + 1e-6)),
    "dr_grpo": rep(centred(lambda g: 1)),
    "rloo": rep([[s - (sum(g) - s) / (len(g) - 1) if np.ptp(g) else 0.0 for s in g] for g in S]),
    "grpo_passk": rep([passk(g) if np.ptp(g) else [0.0] * len(g) for g in S]),
    "max_rl": rep([[(s - np.mean(g)) / np.mean(g) if np.mean(g) > 0 and np.ptp(g) else 0.0 for s in g] for g in S]),
    "opo": rep([opo(g, rows) for g, rows in zip(S, groups)]),
    "gpg": rep([[x * n_rows / nonzero for x in g] for g in centred(lambda g: 1)]),
    "gdpo": gdpo(),
    "rae": rae(),
    "remax": [[[x - greedy[i] for x in returns(r, 1)] for r in g] for i, g in enumerate(groups)],
    "reinforce": whitened([[returns(r, .9) for r in g] for g in groups]),
    "reinforce++": whitened([[returns(r, .9) for r in g] for g in groups]),
    "reinforce++-baseline": whitened(rep(centred(lambda g: 1))),
    "gae": g_adv,
}

# Preferences: pairs of sums of log-probs.
pairs = [dict(zip(("chosen", "rejected", "ref_chosen", "ref_rejected", "margin"), map(float, rng.standard_normal(5)))) for _ in range(6)]
prefs = []
for p in pairs:
    row = dict(p)
    for name, smoothing in (("sigmoid", 0.0), ("smooth", .1), ("ipo", 0.0), ("hinge", 0.0), ("pairwise", 0.0)):
        c = torch.tensor(p["chosen"], requires_grad=True)
        h = (c - p["ref_chosen"]) - (p["rejected"] - p["ref_rejected"])
        beta = .4
        logsig = torch.nn.functional.logsigmoid
        loss = {"sigmoid": lambda: -logsig(beta * h), "smooth": lambda: -.9 * logsig(beta * h) - .1 * logsig(-beta * h), "ipo": lambda: (h - 1 / (2 * beta)) ** 2,
                "hinge": lambda: torch.relu(1 - beta * h), "pairwise": lambda: -logsig(c - p["rejected"] - p["margin"])}[name]()
        loss.backward()
        row[name] = [loss.item(), c.grad.item()]
    prefs.append(row)

os.makedirs(os.path.dirname(OUT), exist_ok=True)


def rounded(x):
    if isinstance(x, dict):
        return {k: rounded(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [rounded(v) for v in x]
    if isinstance(x, (float, np.floating)):
        return round(float(x), 14)
    return int(x) if isinstance(x, (np.integer,)) else x


json.dump(rounded(dict(lp=lp.tolist(), old=old.tolist(), roll=roll.tolist(), ref=ref.tolist(), adv=adv.tolist(), mask=mask.tolist(), losses=losses,
          value=v.tolist(), value_old=vold.tolist(), returns=ret.tolist(), values=values, groups=groups, parts=parts, part_weights=weights, roles=roles,
          greedy=greedy, critic=crit, gae_returns=g_ret, estimators=estimators, preferences=prefs)), open(OUT, "w"), separators=(",", ":"))
