"""Which parameters a model's layout calls shared."""

from torch import nn

from gpu_plan.planner.trace.layout import layout_of


class _Tied(nn.Module):
    def __init__(self, *, decoder: bool) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(4, 2), nn.Linear(2, 4, bias=False)
        self.head.weight = self.words.weight
        if decoder:
            self.decoder = nn.Embedding(4, 2)
            self.decoder.weight = self.words.weight

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def test_what_the_two_embeddings_share_is_not_among_them() -> None:
    assert layout_of(_Tied(decoder=False)).shared == ()
    assert layout_of(_Tied(decoder=True)).shared == ("words head decoder",)
