"""Everything that is known about a day when its order has to be placed, `horizon` days before."""

import numpy as np
import pandas as pd

SERIES = ["shop", "product"]


def read_sales(path):
    frame = pd.read_csv(path, parse_dates=["date"])
    return frame.sort_values([*SERIES, "date"], ignore_index=True)


def add_calendar(frame):
    weekday = 2 * np.pi * frame["date"].dt.day_of_week / 7
    year = 2 * np.pi * frame["date"].dt.day_of_year / 365.25
    frame["weekday_sin"], frame["weekday_cos"] = np.sin(weekday), np.cos(weekday)
    frame["weekday_sin2"], frame["weekday_cos2"] = np.sin(2 * weekday), np.cos(2 * weekday)
    frame["year_sin"], frame["year_cos"] = np.sin(year), np.cos(year)
    frame["weekend"] = (frame["date"].dt.day_of_week >= 5).astype(float)
    return ["weekday_sin", "weekday_cos", "weekday_sin2", "weekday_cos2", "year_sin", "year_cos", "weekend"]


def add_prices(frame):
    usual = frame.groupby(SERIES)["price"].transform("max")
    frame["discount"] = 1 - frame["price"] / usual
    return ["promo", "discount"]


def add_history(frame, lags, windows, horizon):
    names = []
    sales = frame.groupby(SERIES)["log_units"]
    for lag in lags:
        frame[f"lag_{lag}"] = sales.shift(lag)
        names.append(f"lag_{lag}")
    for window in windows:
        frame[f"mean_{window}"] = sales.transform(lambda s: s.shift(horizon).rolling(window).mean())
        names.append(f"mean_{window}")
    frame["promo_then"] = frame.groupby(SERIES)["promo"].shift(horizon)
    return [*names, "promo_then"]


def build(path, lags, windows, horizon):
    """The table of all days with a full history, and the names of the columns that the model reads."""
    frame = read_sales(path)
    frame["log_units"] = np.log1p(frame["units"])
    columns = add_calendar(frame) + add_prices(frame) + add_history(frame, lags, windows, horizon)
    for name in SERIES:
        frame[f"{name}_id"] = frame[name].astype("category").cat.codes
    return frame.dropna().reset_index(drop=True), columns
