"""The surroundings of a run: interpreter, packages, variables that change training, and what git says of its code."""

import os
import sys
import time
from typing import Any, NamedTuple

from clew.archive.model import Git

PACKAGES = """
    torch torchvision torchaudio torchdata torchmetrics triton numpy scipy scikit-learn pandas polars pyarrow
    duckdb lightning pytorch-lightning transformers accelerate datasets tokenizers peft trl diffusers timm
    sentence-transformers safetensors deepspeed bitsandbytes flash-attn xformers apex einops jax jaxlib flax optax
    tensorflow keras xgboost lightgbm catboost imbalanced-learn gymnasium stable-baselines3 ray optuna hydra-core
    omegaconf pillow opencv-python opencv-python-headless albumentations h5py zarr webdataset wandb mlflow
    tensorboard nvidia-cudnn-cu12 nvidia-cublas-cu12 nvidia-nccl-cu12 nvidia-cudnn-cu13 nvidia-cublas
    nvidia-nccl-cu13 clew
""".split()

VARIABLES = frozenset(
    """
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_LAUNCH_BLOCKING CUBLAS_WORKSPACE_CONFIG CUDNN_DETERMINISTIC
    NVIDIA_TF32_OVERRIDE HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HSA_OVERRIDE_GFX_VERSION OMP_NUM_THREADS
    OMP_PROC_BIND MKL_NUM_THREADS MKL_CBWR OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS VECLIB_MAXIMUM_THREADS
    PYTHONHASHSEED PYTHONOPTIMIZE PYTHONPATH PYTHONWARNINGS PYTORCH_CUDA_ALLOC_CONF PYTORCH_ALLOC_CONF
    PYTORCH_ENABLE_MPS_FALLBACK TORCH_ALLOW_TF32_CUBLAS_OVERRIDE
    TORCH_BLAS_PREFER_CUBLASLT TORCH_COMPILE_DISABLE TORCH_DEVICE TORCHDYNAMO_DISABLE TORCHINDUCTOR_MAX_AUTOTUNE
    TORCHINDUCTOR_FREEZING TORCH_NCCL_BLOCKING_WAIT TORCH_NCCL_ASYNC_ERROR_HANDLING TORCH_DISTRIBUTED_DEBUG
    NCCL_P2P_DISABLE NCCL_IB_DISABLE NCCL_ALGO NCCL_PROTO RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK
    ACCELERATE_MIXED_PRECISION ACCELERATE_USE_FSDP HF_HUB_OFFLINE TRANSFORMERS_OFFLINE HF_DATASETS_OFFLINE
    TOKENIZERS_PARALLELISM XLA_FLAGS JAX_ENABLE_X64 TF_DETERMINISTIC_OPS TF_CUDNN_DETERMINISTIC PL_GLOBAL_SEED
    PL_SEED_WORKERS MALLOC_ARENA_MAX LC_ALL LANG TZ
    """.split()
)
"""Nothing outside this list is kept: an archive is passed around, and the environment is where secrets live."""

LAUNCHERS = frozenset(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK"))
LONGEST_VALUE = 4096
DIFF_LIMIT = 1 << 20
GIT_SECONDS = 20.0


class Answer(NamedTuple):
    """What git said: its output up to a limit, and whether there was more."""

    ok: bool
    out: bytes
    cut: bool = False
    why: str = ""


def interpreter() -> dict[str, Any]:
    import platform

    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "executable": sys.executable,
        "platform": platform.platform(),
        "cpus": os.cpu_count() or 0,
        "gpus": _gpus(),
    }


def _gpus() -> list[str]:
    """The models of the NVIDIA devices, as their driver lists them: asking CUDA would start it."""
    base = "/proc/driver/nvidia/gpus"
    found = []
    try:
        for name in sorted(os.listdir(base)):
            with open(os.path.join(base, name, "information"), encoding="utf-8", errors="replace") as file:
                found += [line.partition(":")[2].strip() for line in file if line.startswith("Model:")]
    except OSError:
        return found
    return found


def packages() -> dict[str, str]:
    """The versions of the installed packages that training may depend on; none of them is imported."""
    from importlib.metadata import PackageNotFoundError, version

    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            found[name] = str(version(name))
        except (PackageNotFoundError, OSError, ValueError, KeyError):
            continue
    return found


def variables() -> dict[str, str]:
    return {name: os.environ[name][:LONGEST_VALUE] for name in sorted(VARIABLES) if name in os.environ}


def git(folder: str) -> tuple[Git, bytes]:
    """Commit, branch and uncommitted changes of the repository that `folder` lies in. Changes nothing in it."""
    asked = _ask(folder, "rev-parse", "HEAD")
    if not asked.ok:
        if asked.why:
            return Git(why=asked.why), b""
        inside = _ask(folder, "rev-parse", "--is-inside-work-tree").ok
        return Git(why="there is no commit yet" if inside else "not a git repository"), b""
    branch = _ask(folder, "symbolic-ref", "--short", "-q", "HEAD").out
    diff = _ask(folder, "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "HEAD")
    why = "" if diff.ok or diff.cut else diff.why or "git could not tell what is uncommitted"
    held = Git(_text(asked.out), _text(branch), bool(diff.out), diff.cut, why)
    return held, diff.out


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").strip()


def _ask(folder: str, *words: str) -> Answer:
    """One question to git; a diff without end or a network folder that hangs does not hold up the run."""
    import subprocess

    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    try:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError as error:
        return Answer(False, b"", why=f"git could not be started: {error.strerror}")
    assert process.stdout is not None
    out, late = _up_to(process.stdout.fileno(), DIFF_LIMIT + 1, time.monotonic() + GIT_SECONDS)
    if cut := len(out) > DIFF_LIMIT or late:
        process.kill()
    process.stdout.close()
    status = process.wait()
    why = f"git took longer than {GIT_SECONDS:.0f} s" if late else ""
    return Answer(status == 0, out[:DIFF_LIMIT], cut, why)


def _up_to(handle: int, limit: int, until: float) -> tuple[bytes, bool]:
    """What can be read up to a number of bytes and a moment; whether the moment came first."""
    from select import select

    out = b""
    while len(out) < limit:
        ready, _, _ = select([handle], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return out, True
        piece = os.read(handle, limit - len(out))
        if not piece:
            break
        out += piece
    return out, False
