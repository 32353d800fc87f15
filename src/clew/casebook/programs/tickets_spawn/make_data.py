"""Support tickets with their departments, as CSV."""

import csv
import os
import random

TOPICS = {
    "billing": "invoice charge refund card payment receipt tax amount bank statement fee subscription price credit",
    "network": "router wifi signal cable modem outage ping speed connection tower drop latency antenna channel",
    "account": "password login email profile username locked reset verify code token signup name address session",
    "device": "screen battery charger button camera speaker update firmware freeze restart keyboard phone port heat",
    "orders": "delivery parcel courier tracking box shipped arrived missing return warehouse label date street late",
    "staff": "agent manager rude helpful call chat waiting hold answer team shop visit thanks complaint",
}
COMMON = (
    "the my is was not and it since yesterday please help again still with on after before twice today week why does "
    "can you i have tried nothing works told me problem issue need want asked"
).split()


def ticket(rng, topic):
    other = rng.choice([name for name in TOPICS if name != topic])
    words = [rng.choice(TOPICS[topic].split()) for _ in range(rng.randint(2, 4))]
    words += [rng.choice(TOPICS[other].split()) for _ in range(rng.randint(0, 2))]
    words += [rng.choice(COMMON) for _ in range(rng.randint(4, 12))]
    rng.shuffle(words)
    return " ".join(words)


def write(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "department"])
        writer.writerows(rows)


def main():
    rng = random.Random(11)
    os.makedirs("data", exist_ok=True)
    train = [(ticket(rng, topic), topic) for topic in TOPICS for _ in range(150)]
    val = [(ticket(rng, topic), topic) for topic in TOPICS for _ in range(100)]
    rng.shuffle(val)
    write("data/train.csv", train)
    write("data/val.csv", val)


if __name__ == "__main__":
    main()
