import numpy as np

GRAVITY = -1.6
DT = 0.5


class Lander:
    """Come down on the moon with one engine. Actions: engine off, half, full.

    Observations are height, speed and fuel, each as a share of its largest usual value.
    """

    num_actions = 3
    scale = np.array([50.0, 10.0, 40.0], np.float32)

    def __init__(self, seed=0, max_steps=80):
        self.rng = np.random.default_rng(seed)
        self.max_steps = max_steps

    def reset(self):
        self.height = self.rng.uniform(30.0, 50.0)
        self.speed = self.rng.uniform(-8.0, -3.0)
        self.fuel = 40.0
        self.steps = 0
        return self._observe()

    def _observe(self):
        return np.array([self.height, self.speed, self.fuel], np.float32) / self.scale

    def step(self, action):
        thrust = min(0.5 * action, self.fuel)
        self.fuel -= thrust
        self.speed += DT * (GRAVITY + 4.0 * thrust)
        self.height += DT * self.speed
        self.steps += 1
        reward = -0.005 * thrust
        landed = self.height <= 0.0
        lost = self.height > 80.0
        soft = landed and abs(self.speed) < 3.0
        if landed:
            reward += 1.0 if soft else max(0.5 - abs(self.speed) / 8.0, -1.0)
        elif lost:
            reward -= 1.0
        truncated = self.steps >= self.max_steps
        return self._observe(), reward, landed or lost, truncated, {"soft": soft}
