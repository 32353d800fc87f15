from pricing.models.residual import ResidualMLP

MODELS = {"residual_mlp": ResidualMLP}


def build_model(options, inputs):
    options = dict(options)
    return MODELS[options.pop("name")](inputs, **options)
