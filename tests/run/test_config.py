"""Settings of a run: presets, files and --set, in this order; what is wrong is named in one line with the nearest match."""

import tomllib

import numpy as np
import pytest

from pdno import PDNO, Diffusion, Field, Schedule, UserError
from pdno.diffusion.base import FieldBase, LowModes, SumBase, White
from pdno.model.baseline import FNO
from pdno.model.paper import PDNO_TESTS
from pdno.run.config import Config, seconds

PRESETS = ["auto", "fno", *(f"paper:{test}{noise}" for test in PDNO_TESTS for noise in ("", ":noisy"))]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "mine.toml"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_survives_the_file(name, file) -> None:
    config = Config.preset(name)
    file.write_text(config.toml())
    assert Config.read(file) == config
    assert tomllib.loads(file.read_text())["training"]["batch"] == config.training.batch


@pytest.mark.parametrize("test", PDNO_TESTS)
@pytest.mark.parametrize("noisy", [False, True])
def test_the_presets_of_the_paper_build_its_models(test, noisy) -> None:
    built, expected = Config.preset(f"paper:{test}{':noisy' if noisy else ''}").build(), PDNO.paper(test, noisy)
    assert isinstance(built, PDNO)
    assert built.settings() == expected.settings()
    assert (built.network, built.training, built.normalise) == (expected.network, expected.training, expected.normalise)


def test_auto_builds_the_default_model_and_fno_the_baseline() -> None:
    built = Config.preset("auto").build()
    assert isinstance(built, PDNO)
    assert built.settings() == PDNO().settings()
    assert (built.training, built.normalise, built.budget) == (None, ("scalar", "scalar"), 600)
    assert (built.mean_model, built.diffusion.target) == ("auto", "v")
    assert isinstance(Config.preset("fno").build(), FNO)
    assert Config.preset("auto").with_set(["model.kind=fno"]).build().network == {"kind": "fno"}
    unet = Config.preset("auto").with_set(["network.kind=unet", "network.attention=none"])
    assert unet.build().network == {"kind": "unet", "attention": "none"}
    assert Config.preset("auto").with_set(["model.mean=none"]).build().settings() == PDNO(mean=None).settings()


def test_settings_of_a_model_make_its_configuration() -> None:
    diffusion = Diffusion(Schedule.linear(40), White() + LowModes(2, 0.5), "v", "ddsm")
    model = PDNO({"kind": "unet", "base": 24}, diffusion, variance="mixed", mix=0.3, steps=7, last_noise=False, t_start=2)
    again = Config.of(model).build()
    assert again.settings() == model.settings()
    assert again.network == model.network


def test_a_file_beats_the_preset_and_set_beats_both(file) -> None:
    file.write_text('[training]\nbatch = 7\nrate = 0.5\n[network]\nkind = "unet"\nmultipliers = [1, 2]\n')
    preset = Config.preset("paper:darcy")
    config = preset.with_file(file).with_set(["training.batch=9", "training.batch=11", "reverse.steps=5"])
    assert (preset.training.batch, preset.training.rate, preset.reverse.steps) == (20, 1e-4, 100)
    assert (config.training.batch, config.training.rate, config.reverse.steps) == (11, 0.5, 5)
    assert (config.network.base, config.network.multipliers) == (64, [1, 2])
    assert config.training.epochs == preset.training.epochs == 1000


@pytest.mark.parametrize(
    ("setting", "section", "key", "value"),
    [
        ("training.rate=1e-5", "training", "rate", 1e-5),
        ("training.epochs=2.5", "training", "epochs", 2.5),
        ("training.epochs=none", "training", "epochs", None),
        ("training.checkpoint_seconds=inf", "training", "checkpoint_seconds", np.inf),
        ("network.multipliers=[1,2,2]", "network", "multipliers", [1, 2, 2]),
        ("reverse.last_noise=false", "reverse", "last_noise", False),
        ("reverse.steps=auto", "reverse", "steps", "auto"),
        ("reverse.sampler=dpm", "reverse", "sampler", "dpm"),
        ('reverse.sampler="dpm"', "reverse", "sampler", "dpm"),
        ("diffusion.base=white+low:1,2", "diffusion", "base", "white+low:1,2"),
        ("model.budget=90", "model", "budget", 90),
    ],
)
def test_every_kind_of_value_can_be_set_and_survives_the_file(setting, section, key, value, file) -> None:
    config = Config.preset("auto").with_set([setting])
    assert getattr(getattr(config, section), key) == value
    file.write_text(config.toml())
    assert Config.read(file) == config


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[trainig]\nbatch = 3", "section 'trainig' is unknown; did you mean 'training'?"),
        ("[training]\nbach = 3", "training has no setting 'bach'; did you mean 'batch'?"),
        ("[network]\nbse = 3", "network has no setting 'bse'; did you mean 'base'?"),
        ("[training]\nbatch = 'many'", "training.batch = 'many' is wrong"),
        ("[training]\nbatch = 0", "training cannot work with batch = 0"),
        ("[training]\nema = 1.5", "training cannot work with ema = 1.5"),
        ("[network]\nbase = 'wide'", "network.base = 'wide' is wrong"),
        ("[network]\nbase = 8.5", "network.base = 8.5 is wrong"),
        ("[diffusion]\ntarget = 'meen'", "diffusion.target = 'meen' is wrong: did you mean 'mean'?"),
        ("[reverse]\nvariance = 'gausian'", "reverse.variance = 'gausian' is wrong: did you mean 'gaussian'?"),
        ("[training]\noptimizer = 'sgd'", "training.optimizer = 'sgd' is wrong: expected one of adam, adamw"),
        ("[diffusion]\nbase = 'wite'", "diffusion.base = 'wite' is wrong: base distribution 'wite'"),
        ("training = 3", "training is a section"),
        ("[training\nbatch = 3", "is not a TOML file"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_with_file_and_key(content, words, file) -> None:
    file.write_text(content)
    with pytest.raises(UserError) as error:
        Config.preset("auto").with_file(file)
    assert str(error.value).startswith("mine.toml")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("training.bach=3", "--set training.bach=3: training has no setting 'bach'; did you mean 'batch'?"),
        ("batch=3", "--set batch=3: expected section.key=value"),
        ("training.batch", "--set training.batch: expected section.key=value"),
        ("training.batch=2.5", "training.batch = 2.5 is wrong"),
        ("modle.kind=fno", "section 'modle' is unknown; did you mean 'model'?"),
        ("model.kind=fn", "did you mean 'fno'?"),
    ],
)
def test_what_is_wrong_with_set_is_one_line(setting, words) -> None:
    with pytest.raises(UserError) as error:
        Config.preset("auto").with_set([setting])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["papr:darcy", "paper:darci", "paper:darcy:noise", "paper", "automatic", ""])
def test_an_unknown_preset_is_named(name) -> None:
    with pytest.raises(
        UserError,
        match=f"preset '{name}' is unknown; .*[Ee]xpected one of auto, field, linear, kernel, fno, unet, paper:elliptic1d",
    ):
        Config.preset(name)


def test_a_file_that_is_no_configuration_of_a_run(file) -> None:
    for content in ("[training", "[training]\nbatch = 'x'", "[surprise]\nx = 1"):
        file.write_text(content)
        with pytest.raises(UserError, match=r"mine\.toml is not the configuration of a run") as error:
            Config.read(file)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "law"),
    [
        ("white", White()),
        ("low:3,0.5+white", SumBase((LowModes(3, 0.5), White()))),
        ("white + low:1,2", SumBase((White(), LowModes(1, 2.0)))),
        ("field:3,2", FieldBase(Field(tau=3.0, r=2.0))),
        ("white+field:3,2+low:1,1", SumBase((White(), FieldBase(Field(tau=3.0, r=2.0)), LowModes(1, 1.0)))),
    ],
)
def test_base_laws_from_their_texts(text, law) -> None:
    built = Config.preset("auto").with_set([f"diffusion.base={text}"]).build()
    assert isinstance(built, PDNO)
    assert built.diffusion.law == law
    assert Config.of(built).build().settings() == built.settings()


@pytest.mark.parametrize(
    "text", ["", "wite", "white:1", "field", "field:3", "field:a,b", "low:1", "low:x,1", "white+", "low:0,1"]
)
def test_base_laws_that_do_not_exist(text) -> None:
    with pytest.raises(UserError, match=r"diffusion\.base") as error:
        Config.preset("auto").with_set([f"diffusion.base={text}"])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("text", "expected"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), (" 2 m ", 120)])
def test_times(text, expected) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0s", "-1m", "soon", "10 minutes", "1.2.3s", "1d", "."])
def test_what_is_no_time(text) -> None:
    with pytest.raises(UserError, match=r"is not a time; write for instance 90s, 10m or 1\.5h"):
        seconds(text)
    assert seconds(None) is None


def test_the_settings_of_a_run_serve_another(tmp_path) -> None:
    """But for its data, which every run has of its own."""
    old = Config.preset("fno").changed({"training": {"batch": 7}}, "here")
    old = old.model_copy(update={"data": old.data.model_copy(update={"file": "x.npz", "pairs": {"train": 3}})})
    (tmp_path / "config.toml").write_text(old.toml())
    new = Config().with_file(tmp_path / "config.toml")
    assert new == old.model_copy(update={"data": Config().data})


def test_the_preset_of_field_diffusions_is_that_of_python() -> None:
    config = Config.preset("field")
    assert (config.diffusion.schedule, config.diffusion.target, config.network.kind) == ("geometric", "v", "local")
    assert config.build().settings() == {**PDNO.field().settings(), "network": {"kind": "local"}}
