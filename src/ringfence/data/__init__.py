"""Data sets by name, with the literature's indices, and the embedded default."""

from ringfence.data.choice import ChannelsWarning, Data, OrderWarning
from ringfence.data.dataset import Dataset, Input, InputRangeWarning
from ringfence.data.load import load_dataset

__all__ = ["ChannelsWarning", "Data", "Dataset", "Input", "InputRangeWarning", "OrderWarning", "load_dataset"]
