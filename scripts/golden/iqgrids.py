"""The grids of ggml's IQ types, as the gguf package (MIT licence) has them.

    python scripts/golden/iqgrids.py

Writes internal/iqgrids/packed.go.
"""
import base64, os, textwrap

from gguf import quants

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "internal", "iqgrids", "packed.go")


def main():
    out = ['package iqgrids\n\n// Written by scripts/golden/iqgrids.py from the gguf package (MIT licence, the ggml\n// authors): codebooks of the IQ types, packed, in base64.\nconst (']
    for name, c in [("gridIQ2XXS", quants.IQ2_XXS), ("gridIQ2XS", quants.IQ2_XS), ("gridIQ2S", quants.IQ2_S), ("gridIQ3XXS", quants.IQ3_XXS), ("gridIQ3S", quants.IQ3_S), ("gridIQ1S", quants.IQ1_S)]:
        text = base64.b64encode(bytes.fromhex(c.grid_hex.decode())).decode()
        out.append(f"\t{name} = \"\" +\n" + " +\n".join(f'\t\t"{line}"' for line in textwrap.wrap(text, 128)))
    out.append(f"\tsignsIQ2XXS = \"\" +\n" + " +\n".join(f'\t\t"{line}"' for line in textwrap.wrap(base64.b64encode(quants.IQ2_XXS.ksigns).decode(), 128)))
    out.append(")\n")
    with open(HERE, "w") as f:
        f.write("\n".join(out))


if __name__ == "__main__":
    main()
