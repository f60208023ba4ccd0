"""A gym environment for agentcli: --scheduler gym_scheduler --gym-env 'exec:python3 examples/gym_python/guess.py'

A number from 1 to 100 is to be found; each guess but the right one costs a little."""
import json, random, re, sys

secret = {}  # by trajectory

for line in sys.stdin:
    ask = json.loads(line)
    method, name = ask.get("method"), ask.get("trajectory")
    if method == "close":
        secret.pop(name, None)
    if method not in ("reset", "step"):
        continue
    answer = {"id": ask["id"]}
    if method == "reset":
        secret[name] = random.Random(ask["config"].get("seed", ask["seed"])).randint(1, 100)
        answer.update(observation="I think of a number from 1 to 100. Your guess?",
                      system_message="Answer with one number.", info={})
    else:
        numbers = re.findall(r"\d+", ask["action"])
        guess = int(numbers[-1]) if numbers else None
        if guess == secret[name]:
            answer.update(reward=1, done=True)
        elif guess is None:
            answer.update(observation="That is no number.", reward=-0.1, done=False)
        else:
            hint = "larger" if guess < secret[name] else "smaller"
            answer.update(observation=f"No, my number is {hint}.", reward=-0.02, done=False)
    print(json.dumps(answer), flush=True)
