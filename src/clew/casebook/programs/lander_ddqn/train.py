# Double DQN on the one-engine lander.
import argparse
import random
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

from lander import Lander


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=15_000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--buffer-size", type=int, default=20_000)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--tau", type=float, default=1.0)
    parser.add_argument("--target-network-frequency", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--start-e", type=float, default=1.0)
    parser.add_argument("--end-e", type=float, default=0.05)
    parser.add_argument("--exploration-fraction", type=float, default=0.5)
    parser.add_argument("--learning-starts", type=int, default=1_000)
    parser.add_argument("--train-frequency", type=int, default=5)
    parser.add_argument("--max-grad-norm", type=float, default=10.0)
    return parser.parse_args()


class QNetwork(nn.Module):
    def __init__(self, n_obs, n_actions):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(n_obs, 96),
            nn.ReLU(),
            nn.Linear(96, 64),
            nn.ReLU(),
            nn.Linear(64, n_actions),
        )

    def forward(self, x):
        return self.network(x)


def linear_schedule(start_e, end_e, duration, t):
    slope = (end_e - start_e) / duration
    return max(slope * t + start_e, end_e)


def collate(transitions):
    obs, next_obs, actions, rewards, dones = zip(*transitions)
    return (
        torch.as_tensor(np.stack(obs)),
        torch.as_tensor(np.stack(next_obs)),
        torch.as_tensor(actions),
        torch.as_tensor(rewards, dtype=torch.float32),
        torch.as_tensor(dones, dtype=torch.float32),
    )


if __name__ == "__main__":
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    env = Lander(seed=args.seed)
    obs = env.reset()
    q_network = QNetwork(len(obs), env.num_actions)
    target_network = QNetwork(len(obs), env.num_actions)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = optim.Adam(q_network.parameters(), lr=args.learning_rate)
    rb = deque(maxlen=args.buffer_size)

    start_time = time.time()
    episode_return, returns, soft, losses = 0.0, [], [], []
    for global_step in range(args.total_timesteps):
        epsilon = linear_schedule(
            args.start_e, args.end_e, args.exploration_fraction * args.total_timesteps, global_step
        )
        if random.random() < epsilon:
            action = random.randrange(env.num_actions)
        else:
            with torch.no_grad():
                action = q_network(torch.as_tensor(obs)).argmax().item()

        next_obs, reward, terminated, truncated, info = env.step(action)
        rb.append((obs, next_obs, action, reward, terminated))
        episode_return += reward
        obs = next_obs
        if terminated or truncated:
            returns.append(episode_return)
            soft.append(info["soft"])
            episode_return = 0.0
            obs = env.reset()

        if global_step >= args.learning_starts and global_step % args.train_frequency == 0:
            b_obs, b_next_obs, b_actions, b_rewards, b_dones = collate(random.sample(rb, args.batch_size))
            with torch.no_grad():
                next_actions = q_network(b_next_obs).argmax(dim=1, keepdim=True)
                next_q = target_network(b_next_obs).gather(1, next_actions).squeeze(1)
                td_target = b_rewards + args.gamma * next_q * (1 - b_dones)
            old_val = q_network(b_obs).gather(1, b_actions.unsqueeze(1)).squeeze(1)
            loss = F.smooth_l1_loss(old_val, td_target)

            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(q_network.parameters(), args.max_grad_norm)
            optimizer.step()
            losses.append(loss.item())

        if global_step % args.target_network_frequency == 0:
            for target_param, q_param in zip(target_network.parameters(), q_network.parameters()):
                target_param.data.copy_(args.tau * q_param.data + (1.0 - args.tau) * target_param.data)

        if (global_step + 1) % 3000 == 0:
            sps = int(global_step / (time.time() - start_time))
            print(
                f"global_step={global_step + 1} epsilon={epsilon:.2f} td_loss={np.mean(losses[-100:]):.5f} "
                f"episodic_return={np.mean(returns[-50:]):.3f} soft={np.mean(soft[-50:]):.2f} SPS={sps}"
            )

    eval_env, landings, scores = Lander(seed=20_000), 0, []
    for _ in range(100):
        obs, done, score = eval_env.reset(), False, 0.0
        while not done:
            with torch.no_grad():
                action = q_network(torch.as_tensor(obs)).argmax().item()
            obs, reward, terminated, truncated, info = eval_env.step(action)
            score += reward
            done = terminated or truncated
        landings += info["soft"]
        scores.append(score)
    print(f"eval_return={np.mean(scores):.3f}")
    print(f"final soft_landings={landings / 100:.2f}")
