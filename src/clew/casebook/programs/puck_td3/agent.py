"""Twin delayed deep deterministic policy gradient."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


def mlp(sizes, output=None):
    layers = []
    for n_in, n_out in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    layers.append(nn.Linear(sizes[-2], sizes[-1]))
    if output is not None:
        layers.append(output)
    return nn.Sequential(*layers)


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, max_action, hidden):
        super().__init__()
        self.net = mlp([obs_dim, hidden, hidden, act_dim], nn.Tanh())
        self.max_action = max_action

    def forward(self, obs):
        return self.max_action * self.net(obs)


class Critic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.q1 = mlp([obs_dim + act_dim, hidden, hidden, 1])
        self.q2 = mlp([obs_dim + act_dim, hidden, hidden, 1])

    def forward(self, obs, action):
        x = torch.cat([obs, action], dim=1)
        return self.q1(x), self.q2(x)

    def first(self, obs, action):
        return self.q1(torch.cat([obs, action], dim=1))


def soft_update(source, target, tau):
    with torch.no_grad():
        for p, p_target in zip(source.parameters(), target.parameters()):
            p_target.lerp_(p, tau)


class TD3:
    def __init__(self, obs_dim, act_dim, max_action, config):
        self.config = config
        self.max_action = max_action
        self.actor = Actor(obs_dim, act_dim, max_action, config.hidden)
        self.actor_target = copy.deepcopy(self.actor)
        self.critic = Critic(obs_dim, act_dim, config.hidden)
        self.critic_target = copy.deepcopy(self.critic)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=config.actor_lr)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=config.critic_lr)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, noise=0.0):
        action = self.actor(torch.as_tensor(obs).unsqueeze(0)).squeeze(0)
        action = action + noise * self.max_action * torch.randn_like(action)
        return action.clamp(-self.max_action, self.max_action).numpy()

    def critic_loss(self, obs, action, reward, next_obs, not_done):
        with torch.no_grad():
            noise = (torch.randn_like(action) * self.config.policy_noise).clamp(
                -self.config.noise_clip, self.config.noise_clip
            )
            next_action = (self.actor_target(next_obs) + noise).clamp(-self.max_action, self.max_action)
            q1, q2 = self.critic_target(next_obs, next_action)
            target = reward + not_done * self.config.gamma * torch.min(q1, q2)
        q1, q2 = self.critic(obs, action)
        return F.mse_loss(q1, target) + F.mse_loss(q2, target)

    def actor_loss(self, obs):
        return -self.critic.first(obs, self.actor(obs)).mean()

    def update(self, batch):
        self.updates += 1
        critic_loss = self.critic_loss(*batch)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        if self.updates % self.config.policy_delay == 0:
            actor_loss = self.actor_loss(batch[0])
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            soft_update(self.critic, self.critic_target, self.config.tau)
            soft_update(self.actor, self.actor_target, self.config.tau)
        return critic_loss.item()
