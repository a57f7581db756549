"""What a fork of the test processes need not import again; imported once, by the fork server."""

import gc

from transformers import CLIPModel, ResNetForImageClassification, ViTForImageClassification  # noqa: F401

import stockpot.cli.main
import stockpot.explain.run
import stockpot.fuse.run
import stockpot.harden.run
import stockpot.measure.run
import stockpot.registries
import stockpot.report.page
import stockpot.run
import stockpot.season.run  # noqa: F401

# Collections in a fork would touch, and so copy, every page of what was imported.
gc.collect()
gc.freeze()
