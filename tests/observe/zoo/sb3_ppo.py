"""PPO of Stable-Baselines3 on CartPole, two environments side by side, then one evaluation."""

from common import print_digest
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

env = make_vec_env("CartPole-v1", n_envs=2, seed=0)
model = PPO(
    "MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=4, learning_rate=1e-3, seed=0, device="cpu", verbose=0
)
model.learn(total_timesteps=512)
mean, std = evaluate_policy(model, make_vec_env("CartPole-v1", n_envs=1, seed=1), n_eval_episodes=3)
print(f"mean reward {mean:.2f} +- {std:.2f} after {model.num_timesteps} steps")
print_digest(model.policy, model.policy.optimizer)
