"""What runs beside the GPU in the training process: standard library, torch, cryptography, none of ours."""
