"""Small water boilers with a slow heating element, simulated side by side."""

import numpy as np

TRIP_TEMPERATURE = 96.0


class Boilers:
    """Hold the water at its set point while the draw changes.

    Observations: water (degrees C), element (degrees C), set point (degrees C), draw (kg/s), pressure (Pa).
    The action is the heater power, 0 for off at -1 and full at +1. Above the trip temperature the boiler shuts down.
    """

    observation_size = 5
    action_size = 1

    def __init__(self, count, time_limit, seed):
        self.count, self.time_limit = count, time_limit
        self.rng = np.random.default_rng(seed)
        self.water = np.zeros(count)
        self.element = np.zeros(count)
        self.target = np.zeros(count)
        self.draw = np.zeros(count)
        self.steps = np.zeros(count, int)
        self._restart(np.ones(count, bool))

    def _restart(self, which):
        n = int(which.sum())
        self.water[which] = self.rng.uniform(20.0, 80.0, n)
        self.element[which] = self.water[which]
        self.target[which] = self.rng.uniform(45.0, 80.0, n)
        self.draw[which] = self.rng.uniform(0.02, 0.08, n)
        self.steps[which] = 0

    def observe(self):
        pressure = 101_325.0 + 450.0 * (self.water - 20.0) + 8_000.0 * self.draw / 0.08
        return np.stack([self.water, self.element, self.target, self.draw, pressure], axis=1).astype(np.float32)

    def error(self):
        return np.abs(self.water - self.target)

    def step(self, action):
        power = np.clip(0.5 * (action[:, 0] + 1.0), 0.0, 1.0)
        self.element += 40.0 * power - 0.35 * (self.element - self.water)
        self.water += 0.12 * (self.element - self.water) - 1.2 * self.draw * (self.water - 12.0)
        self.draw = np.clip(self.draw + self.rng.normal(0.0, 0.002, self.count), 0.01, 0.1)
        self.steps += 1
        tripped = self.water > TRIP_TEMPERATURE
        reward = 1.0 - np.minimum(self.error() / 5.0, 4.0) - 20.0 * tripped
        timed_out = (self.steps >= self.time_limit) & ~tripped
        last = self.observe()
        self._restart(tripped | timed_out)
        return self.observe(), reward.astype(np.float32), tripped, timed_out, last
