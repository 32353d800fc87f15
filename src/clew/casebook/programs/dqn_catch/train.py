# DQN on Catch: a ball falls, the paddle at the bottom must be under it.
import argparse
import copy
import random

import gymnasium as gym
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Catch(gym.Env):
    observation_space = gym.spaces.Box(0.0, 1.0, (50,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self, rows=10, columns=5):
        self.rows, self.columns = rows, columns

    def _observe(self):
        board = np.zeros((self.rows, self.columns), np.float32)
        board[self.ball_y, self.ball_x] = 1.0
        board[self.rows - 1, self.paddle] = 1.0
        return board.ravel()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.ball_x = int(self.np_random.integers(self.columns))
        self.ball_y = 0
        self.paddle = self.columns // 2
        return self._observe(), {}

    def step(self, action):
        self.paddle = min(max(self.paddle + int(action) - 1, 0), self.columns - 1)
        self.ball_y += 1
        terminated = self.ball_y == self.rows - 1
        reward = 0.0
        if terminated:
            reward = 1.0 if self.paddle == self.ball_x else -1.0
        return self._observe(), reward, terminated, False, {}


class ReplayBuffer:
    def __init__(self, capacity, n_obs):
        self.obs = np.zeros((capacity, n_obs), np.float32)
        self.next_obs = np.zeros((capacity, n_obs), np.float32)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float32)
        self.dones = np.zeros(capacity, np.float32)
        self.capacity, self.pos, self.full = capacity, 0, False

    def add(self, obs, next_obs, action, reward, done):
        i = self.pos
        self.obs[i], self.next_obs[i] = obs, next_obs
        self.actions[i], self.rewards[i], self.dones[i] = action, reward, done
        self.pos = (i + 1) % self.capacity
        self.full = self.full or self.pos == 0

    def sample(self, batch_size):
        index = np.random.randint(0, self.capacity if self.full else self.pos, batch_size)
        picked = (self.obs[index], self.next_obs[index], self.actions[index], self.rewards[index], self.dones[index])
        return tuple(torch.from_numpy(array) for array in picked)


class QNetwork(nn.Module):
    def __init__(self, env):
        super().__init__()
        self.network = nn.Sequential(
            nn.Linear(env.observation_space.shape[0], 64),
            nn.ReLU(),
            nn.Linear(64, 64),
            nn.ReLU(),
            nn.Linear(64, env.action_space.n),
        )

    def forward(self, x):
        return self.network(x)


def linear_schedule(start, end, duration, t):
    return max(end, start + (end - start) * t / duration)


@torch.no_grad()
def evaluate(q_network, episodes, seed):
    env, total = Catch(), 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        done = False
        while not done:
            obs, reward, terminated, truncated, _ = env.step(q_network(torch.from_numpy(obs)).argmax().item())
            total += reward
            done = terminated or truncated
    return total / episodes


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--total-timesteps", type=int, default=8000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--buffer-size", type=int, default=4000)
    parser.add_argument("--gamma", type=float, default=0.97)
    parser.add_argument("--target-network-frequency", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--start-e", type=float, default=1.0)
    parser.add_argument("--end-e", type=float, default=0.05)
    parser.add_argument("--exploration-fraction", type=float, default=0.5)
    parser.add_argument("--learning-starts", type=int, default=500)
    parser.add_argument("--train-frequency", type=int, default=10)
    args = parser.parse_args()

    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    env = Catch()
    q_network = QNetwork(env)
    target_network = copy.deepcopy(q_network)
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)
    rb = ReplayBuffer(args.buffer_size, env.observation_space.shape[0])

    obs, _ = env.reset(seed=args.seed)
    episode_return, returns, losses = 0.0, [], []
    for global_step in range(args.total_timesteps):
        epsilon = linear_schedule(
            args.start_e, args.end_e, args.exploration_fraction * args.total_timesteps, global_step
        )
        if random.random() < epsilon:
            action = random.randrange(3)
        else:
            with torch.no_grad():
                action = q_network(torch.from_numpy(obs)).argmax().item()

        next_obs, reward, terminated, truncated, _ = env.step(action)
        rb.add(obs, next_obs, action, reward, terminated)
        episode_return += reward
        obs = next_obs
        if terminated or truncated:
            returns.append(episode_return)
            episode_return = 0.0
            obs, _ = env.reset()

        if global_step >= args.learning_starts:
            if global_step % args.train_frequency == 0:
                b_obs, b_next_obs, b_actions, b_rewards, b_dones = rb.sample(args.batch_size)
                with torch.no_grad():
                    target_max = target_network(b_next_obs).max(dim=1).values
                    td_target = b_rewards + args.gamma * target_max * (1 - b_dones)
                old_val = q_network(b_obs).gather(1, b_actions.unsqueeze(1)).squeeze(1)
                loss = F.mse_loss(old_val, td_target)

                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())

            if global_step % args.target_network_frequency == 0:
                target_network.load_state_dict(q_network.state_dict())

        if (global_step + 1) % 1000 == 0:
            td_loss = np.mean(losses[-100:])
            print(
                f"global_step={global_step + 1} epsilon={epsilon:.2f} td_loss={td_loss:.4f}"
                f" episodic_return={np.mean(returns[-50:]):.3f}"
            )

    print(f"final eval_return={evaluate(q_network, 100, seed=5000):.3f}")


if __name__ == "__main__":
    main()
