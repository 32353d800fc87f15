"""A puck on a table: push it onto the mark and keep it there."""

import numpy as np


class PuckWorld:
    obs_dim = 6
    act_dim = 2
    max_action = 1.0

    def __init__(self, seed=None, time_limit=40):
        self.rng = np.random.default_rng(seed)
        self.time_limit = time_limit

    def reset(self):
        self.position = self.rng.uniform(-0.7, 0.7, 2)
        self.velocity = self.rng.uniform(-0.5, 0.5, 2)
        self.mark = self.rng.uniform(-0.7, 0.7, 2)
        self.steps = 0
        return self._obs()

    def _obs(self):
        return np.concatenate([self.position, self.velocity, self.mark - self.position]).astype(np.float32)

    def step(self, action):
        force = np.clip(action, -self.max_action, self.max_action)
        self.velocity = 0.9 * self.velocity + 0.3 * force
        self.position = self.position + 0.1 * self.velocity
        self.steps += 1
        distance = np.linalg.norm(self.mark - self.position)
        reward = -distance - 0.02 * float(force @ force)
        fallen = bool(np.abs(self.position).max() > 1.0)
        if fallen:
            reward -= 5.0
        return self._obs(), reward, fallen, self.steps >= self.time_limit
