"""Actor-critic on a corridor: walk to the door at the right end, which ends the episode."""

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(0)
LENGTH, GAMMA = 8, 0.97


class Corridor:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self):
        self.position = int(torch.randint(0, LENGTH - 1, (1,), generator=self.generator))
        return self.observe()

    def observe(self):
        return nn.functional.one_hot(torch.tensor(self.position), LENGTH).float()

    def step(self, action):
        self.position = max(self.position + (1 if action == 1 else -1), 0)
        done = self.position == LENGTH - 1
        return self.observe(), 1.0 if done else -0.02, done


actor = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 2))
critic = nn.Sequential(nn.Linear(LENGTH, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
env = Corridor(seed=1)
state, lengths, steps = env.reset(), [], 0
for update in range(400):
    states, actions, rewards, following, dones = [], [], [], [], []
    for _ in range(16):
        with torch.no_grad():
            action = Categorical(logits=actor(state)).sample()
        after, reward, done = env.step(int(action))
        states.append(state)
        actions.append(action)
        rewards.append(reward)
        following.append(after)
        dones.append(float(done))
        steps += 1
        state = env.reset() if done or steps > 60 else after
        if done or steps > 60:
            lengths.append(steps)
            steps = 0
    batch, nexts = torch.stack(states), torch.stack(following)
    reward, done = torch.tensor(rewards), torch.tensor(dones)
    with torch.no_grad():
        target = reward + GAMMA * (1 - done) * critic(nexts).squeeze(1)
    values = critic(batch).squeeze(1)
    advantage = (target - values).detach()
    policy = Categorical(logits=actor(batch))
    policy_loss = -(policy.log_prob(torch.stack(actions)) * advantage).mean()
    loss = policy_loss + 0.5 * nn.functional.mse_loss(values, target) - 0.01 * policy.entropy().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 40 == 0:
        recent = lengths[-20:] or [60]
        print(f"update {update} value_loss {loss.item():.4f} episode_length {sum(recent) / len(recent):.1f}")
