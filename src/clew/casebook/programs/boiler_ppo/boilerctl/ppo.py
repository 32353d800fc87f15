import torch
import torch.nn.functional as F


class PPO:
    def __init__(self, model, options):
        self.model, self.options = model, options
        self.optimizer = torch.optim.Adam(model.parameters(), lr=options["learning_rate"], eps=1e-5)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(
            self.optimizer, start_factor=1.0, end_factor=0.1, total_iters=options["updates"]
        )

    def policy_loss(self, ratio, advantages):
        low, high = 1 - self.options["clip_range"], 1 + self.options["clip_range"]
        return -torch.min(ratio * advantages, ratio.clamp(low, high) * advantages).mean()

    def losses(self, batch):
        dist = self.model.distribution(batch.observations)
        advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
        ratio = (self.model.log_prob(dist, batch.actions) - batch.log_probs).exp()
        policy_loss = self.policy_loss(ratio, advantages)
        value_loss = F.mse_loss(self.model.value(batch.observations), batch.returns)
        return policy_loss, value_loss, dist.entropy().mean()

    def update(self, batch):
        batch = batch.flat()
        size = len(batch.actions) // self.options["minibatches"]
        logs = []
        for _ in range(self.options["epochs"]):
            for index in torch.randperm(len(batch.actions)).split(size):
                policy_loss, value_loss, entropy = self.losses(batch.pick(index))
                bonus = self.options["entropy_weight"] * entropy
                loss = policy_loss + self.options["value_weight"] * value_loss - bonus
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.options["max_grad_norm"])
                self.optimizer.step()
                logs.append((policy_loss.item(), value_loss.item(), entropy.item()))
        self.scheduler.step()
        return [sum(column) / len(logs) for column in zip(*logs)]
