"""Two models and two optimizers, one contrastive loss: an image and a text encoder, evaluated before training."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class ImageEncoder(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.patches, self.out = nn.Linear(3 * 4 * 4, 32), nn.Linear(32, width)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = F.unfold(images, 4, stride=4).transpose(1, 2)
        return F.normalize(self.out(F.gelu(self.patches(patches)).mean(1)), dim=-1)


class TextEncoder(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return F.normalize(self.layers(self.tokens(ids)).mean(1), dim=-1)


def similarity(images: ImageEncoder, texts: TextEncoder, batch: list[torch.Tensor]) -> torch.Tensor:
    return images(batch[0]) @ texts(batch[1]).T / 0.07


def main() -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    images, texts = ImageEncoder(64).to(device), TextEncoder(100, 64).to(device)
    image_optimizer = torch.optim.AdamW(images.parameters(), lr=1e-3)
    text_optimizer = torch.optim.SGD(texts.parameters(), lr=1e-2, momentum=0.9)
    data = TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(0, 100, (64, 12)))
    loader = DataLoader(data, batch_size=8, shuffle=True)

    images.eval(), texts.eval()
    with torch.no_grad():
        right = 0
        for batch in loader:
            scores = similarity(images, texts, [tensor.to(device) for tensor in batch])
            right += (scores.argmax(1) == torch.arange(len(scores), device=device)).sum().item()
    print(f"accuracy before training: {right / len(data):.3f}")

    images.train(), texts.train()
    for batch in loader:
        scores = similarity(images, texts, [tensor.to(device) for tensor in batch])
        targets = torch.arange(len(scores), device=device)
        loss = (F.cross_entropy(scores, targets) + F.cross_entropy(scores.T, targets)) / 2
        image_optimizer.zero_grad()
        text_optimizer.zero_grad()
        loss.backward()
        image_optimizer.step()
        text_optimizer.step()
        print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
