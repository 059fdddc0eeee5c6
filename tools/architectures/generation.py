"""Pictures made: small forms of Stable Diffusion's parts, by diffusers."""

from __future__ import annotations

from . import Example, architecture


@architecture("sd unet, small")
def sd_unet() -> Example:
    """A denoiser of 64 to 256 channels with cross-attention, on latents of 32 x 32."""
    import torch
    from diffusers import UNet2DConditionModel

    from .parts import Calls, noise

    net = UNet2DConditionModel(sample_size=32, block_out_channels=(64, 128, 256), layers_per_block=1, cross_attention_dim=256,
                               attention_head_dim=8, norm_num_groups=32,
                               down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                               up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))  # fmt: skip
    inputs = {"latent": noise(1, 4, 32, 32), "time": torch.tensor([17.0]), "text": noise(1, 77, 256)}
    call = Calls(net.eval(), lambda part, latent, time, text: part(latent, time, text, return_dict=False)[0])
    return Example(call, inputs)


@architecture("sd vae decoder, small")
def sd_vae() -> Example:
    """A decoder of latents of 32 x 32 to pictures of 64 x 64."""
    from diffusers import AutoencoderKL

    from .parts import Calls, noise

    net = AutoencoderKL(block_out_channels=(64, 128), layers_per_block=1, norm_num_groups=32, latent_channels=4,
                        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2)  # fmt: skip
    return Example(
        Calls(net.eval(), lambda part, x: part.decode(x, return_dict=False)[0]), {"latent": noise(1, 4, 32, 32)}
    )
