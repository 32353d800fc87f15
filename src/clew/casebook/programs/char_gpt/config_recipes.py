# train a character-level model on the recipes
eval_interval = 60
eval_iters = 10
log_interval = 25

batch_size = 16
block_size = 48

n_layer = 2
n_head = 2
n_embd = 48
dropout = 0.0

learning_rate = 4e-3
max_iters = 360
lr_decay_iters = 360
min_lr = 4e-4
beta2 = 0.99
warmup_iters = 40
