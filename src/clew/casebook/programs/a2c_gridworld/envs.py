"""A batch of small grid worlds, stepped together."""

import numpy as np

MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])


class GridWorlds:
    """Walk to the goal; falling into the pit ends the episode badly, and so does dawdling.

    Observations are three planes (agent, goal, pit), flattened. Rewards: +1 goal, -1 pit, -0.02 per step.
    """

    def __init__(self, count, size=5, max_steps=25, seed=0):
        self.count, self.size, self.max_steps = count, size, max_steps
        self.rng = np.random.default_rng(seed)
        self.agent = np.zeros((count, 2), int)
        self.goal = np.zeros((count, 2), int)
        self.pit = np.zeros((count, 2), int)
        self.steps = np.zeros(count, int)
        for i in range(count):
            self._place(i)

    @property
    def observation_size(self):
        return 3 * self.size**2

    def _place(self, i):
        cells = self.rng.choice(self.size**2, 3, replace=False)
        self.agent[i], self.goal[i], self.pit[i] = [divmod(cell, self.size) for cell in cells]
        self.steps[i] = 0

    def observe(self):
        planes = np.zeros((self.count, 3, self.size, self.size), np.float32)
        rows = np.arange(self.count)
        for plane, cells in enumerate((self.agent, self.goal, self.pit)):
            planes[rows, plane, cells[:, 0], cells[:, 1]] = 1.0
        return planes.reshape(self.count, -1)

    def step(self, actions):
        """Returns what followed each action, and the observation to act on next (a new episode where one ended)."""
        self.agent = np.clip(self.agent + MOVES[actions], 0, self.size - 1)
        self.steps += 1
        at_goal = (self.agent == self.goal).all(1)
        at_pit = (self.agent == self.pit).all(1)
        reward = at_goal * 1.0 - at_pit * 1.0 - 0.02
        terminated = at_goal | at_pit
        truncated = (self.steps >= self.max_steps) & ~terminated
        followed = self.observe()
        for i in np.flatnonzero(terminated | truncated):
            self._place(i)
        return followed, reward.astype(np.float32), terminated, truncated, self.observe(), at_goal
