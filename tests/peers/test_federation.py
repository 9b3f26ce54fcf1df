"""Federation files: what goes into them, what comes out again, and what makes them the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import hobnob as hb
from hobnob.cli import federation_file, federation_view
from hobnob.cli.agent_files import AgentFiles, read_table
from hobnob.core.problem import Problem
from hobnob.ground.errors import ConfigError, HobnobError
from hobnob.runtimes.peers.federation import Federation
from tests.peers import five_owners
from tests.peers.five_owners import NAMES


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("five")
    five_owners.settle(folder)
    return folder


@pytest.fixture
def folder(settled: Path, tmp_path: Path) -> Path:
    """A copy of its own, to change."""
    return Path(shutil.copytree(settled, tmp_path / "own"))


def described(folder: Path, number: int) -> federation_file.Described:
    federation = Federation.read(folder / "federation.toml")
    return federation_file.described(
        federation, folder, [number], [folder / f"{NAMES[number]}.csv"]
    )


def test_what_the_file_says(settled: Path) -> None:
    made = Federation.read(settled / "federation.toml")
    assert [member.name for member in made.members] == list(NAMES)
    assert made.network.matrix == pytest.approx(hb.ring(5).matrix)
    assert made.rules.arrival == 60
    settings = made.settings
    assert (settings["steps"], settings["seed"], settings["record_every"]) == (40, 0, 10)
    table = settings["problem"]
    assert table["name"] == "mine.py:problem"
    assert table["columns"][0] == "age"
    assert (table["shapes"]["x"], table["shapes"]["y"]) == (6, 6)
    assert table["shapes"]["outer"] == "measured float64[16, 6], sign float64[16]"
    text = (settled / "federation.toml").read_text()
    assert str(settled) not in text
    assert "PRIVATE" not in text


def test_every_owner_makes_the_same_problem_from_its_own_data(settled: Path) -> None:
    for number in range(5):
        found = described(settled, number)
        assert found.problem.size == 5
        assert found.algorithm is None
        assert found.options["steps"] == 40


def test_the_same_federation_is_written_once_and_another_is_kept(folder: Path) -> None:
    before = (folder / "federation.toml").read_bytes()
    again = five_owners.make(folder)
    assert (folder / "federation.toml").read_bytes() == before
    assert again.id == Federation.read(folder / "federation.toml").id
    text = (folder / "my.toml").read_text()
    (folder / "my.toml").write_text(text.replace("steps = 40", "steps = 41"))
    with pytest.raises(ConfigError, match="is another federation"):
        five_owners.make(folder)
    assert (folder / "federation.toml").read_bytes() == before


def test_several_agents_of_a_member(folder: Path) -> None:
    (folder / "federation.toml").unlink()
    made = five_owners.make(folder, {"ben": 3})
    assert [part.tolist() for part in made.parts] == [[0], [1, 2, 3], [4], [5], [6]]
    assert made.network.size == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("seed = 0|seed = [0, 1]", "has one seed"),
        ("seed = 0|tolerance = 1e-3", "there is no tolerance across owners"),
        ('seed = 0|metrics = ["objective"]', "there is no metrics across owners"),
        ('name = "ring"|name = "ring"\n[beside]\nname = "dsoba"', "there is no beside"),
        ('name = "ring"|edges = [[0, 1], [2, 3]]', "The graph has "),
        ('name = "ring"|name = "ring"\nlevels.y = { name = "complete" }', "has no levels"),
        ('duals = "held"|duals = "kept"', '"held" or "dropped"'),
        ('"mine.py:problem"|"mine.py:problem"\nagents = 4', "the members have 5 together"),
        ('"mine.py:problem"|"mine.py:problem"\nsize = 4', "there is no option 'size'"),
        ('"mine.py:problem"|"yours.py:problem"', "There is no yours.py"),
        ('"mine.py:problem"|"mine.py:nothing"', "It has: fit, regularised, problem"),
        (
            '[rules]|[algorithm]\nname = "fednest"\nalpha = 0.1\nbeta = 0.1\n[rules]',
            "[algorithm] fednest needs",
        ),
        ('[rules]|[algorithm]\nname = "dsoba"\nalpha = 0.1\n[rules]', "dsoba needs beta"),
    ],
)
def test_what_cannot_be_a_federation(folder: Path, change: str, message: str) -> None:
    old, _, new = change.partition("|")
    text = (folder / "my.toml").read_text()
    assert old in text
    (folder / "my.toml").write_text(text.replace(old, new, 1))
    (folder / "federation.toml").unlink()
    with pytest.raises(HobnobError) as caught:
        five_owners.make(folder)
    assert message in str(caught.value)
    assert not (folder / "federation.toml").exists()


def test_a_method_with_a_server_is_no_method_for_owners(folder: Path) -> None:
    text = (folder / "my.toml").read_text()
    fedsbo = hb.FedSBO.suggest(hb.Scale(10.0, 1.0))
    settings = "".join(f"{name} = {value!r}\n" for name, value in vars(fedsbo).items())
    (folder / "my.toml").write_text(f'{text}\n[algorithm]\nname = "fedsbo"\n{settings}')
    (folder / "federation.toml").unlink()
    with pytest.raises(ConfigError, match="speaks through a server"):
        five_owners.make(folder)


def test_losses_that_differ_are_found(folder: Path) -> None:
    text = (folder / "mine.py").read_text()
    for old, new, message in (
        ("y**2 / 2", "y**2 / 3", "has other losses, bounds or another start"),
        ("np.full(d, -2.0)", "np.full(d, -2.1)", "has other losses, bounds or another start"),
        ("np.log(1e-3)", "np.log(1e-4)", "has other losses, bounds or another start"),
        ("batch_size=16", "batch_size=8", "outer is measured float64[8, 6]"),
    ):
        assert old in text
        (folder / "mine.py").write_text(text.replace(old, new, 1))
        with pytest.raises(ConfigError) as caught:
            described(folder, 1)
        assert message in str(caught.value)
    (folder / "mine.py").write_text(text.replace("fit, and the data term", "fit; the data term"))
    described(folder, 1)  # other words, the same losses


def test_numbers_of_an_owner_must_not_enter_a_loss(folder: Path) -> None:
    text = (folder / "mine.py").read_text()
    text = text.replace("x0=np.full(d, -2.0)", 'x0=np.full(d, -float(read(1)["age"].mean()) / 30)')
    (folder / "mine.py").write_text(text)
    with pytest.raises(ConfigError, match="must not enter a loss or x0"):
        described(folder, 1)


def test_another_version_of_jax_is_named(folder: Path) -> None:
    text = (folder / "federation.toml").read_text()
    old = text[text.index('jax = "') :].splitlines()[0]
    (folder / "federation.toml").write_text(text.replace(old, 'jax = "0.0.1"', 1))
    described(folder, 1)  # the same losses are enough
    mine = (folder / "mine.py").read_text()
    (folder / "mine.py").write_text(mine.replace("y**2 / 2", "y**2 / 3"))
    with pytest.raises(ConfigError, match=r"made with jax 0\.0\.1 \(here "):
        described(folder, 1)


def test_what_is_sent_is_counted_from_the_step(settled: Path) -> None:
    federation = Federation.read(settled / "federation.toml")
    sends = federation_view.sending(federation, None)
    assert sends.parts == {"x": 48, "y": 48, "z": 48}
    assert (sends.rounds, sends.bytes) == (1, 144)
    three = hb.EdgeSPARKLE(alpha=0.1, beta=0.1, gamma=0.1, theta=0.2, rounds="three")
    assert federation_view.sending(federation, three).rounds == 3


# --- ready problems ----------------------------------------------------------------------------


def test_hyperopt_with_files_of_the_agents(folder: Path) -> None:
    for name in NAMES:
        text = (folder / f"{name}.csv").read_text()
        (folder / f"{name}.csv").write_text(text.replace("readmitted", "label", 1))
    text = (folder / "my.toml").read_text()
    options = 'name = "hyperopt"\nscaling = "none"\nbatch_size = 4'
    (folder / "my.toml").write_text(text.replace('name = "mine.py:problem"', options))
    (folder / "federation.toml").unlink()
    made = five_owners.make(folder)
    assert made.settings["problem"]["features"] == 6
    found = described(folder, 3).problem.hosting([3])
    (training,) = found.inner_data.lengths
    (validation,) = found.outer_data.lengths
    assert training == validation == 250
    assert set(np.unique(found.inner_data.arrays["label"])) == {-1.0, 1.0}
    (folder / "my.toml").write_text(text.replace('name = "mine.py:problem"', 'name = "hyperopt"'))
    with pytest.raises(HobnobError, match="they would have to be pooled"):
        five_owners.make(folder)


def test_hyperopt_with_a_function() -> None:
    asked = []

    def read(agent: int) -> tuple[np.ndarray, np.ndarray]:
        asked.append(agent)
        rng = np.random.default_rng(agent)
        return rng.normal(size=(10 + agent, 3)), np.ones(10 + agent)  # one class alone is fine

    hyperopt = hb.problems.get("hyperopt")
    problem = hyperopt(read, 4, scaling="none", features=4, intercept=True)
    assert not asked
    assert (problem.size, problem.dim_x) == (4, 5)
    hosted = problem.hosting([2])
    assert asked == [2]
    assert hosted.inner_data.arrays["features"].shape == (6, 5)
    assert (hosted.inner_data.arrays["features"][:, 3] == 0).all()  # a sparse file's last feature
    with pytest.raises(HobnobError, match="features is needed"):
        hyperopt(read, 4, scaling="none")
    with pytest.raises(HobnobError, match="have 3 features, and there are 2"):
        hyperopt(read, 4, scaling="none", features=2).hosting([0])
    with pytest.raises(HobnobError, match="name the one that is"):
        hyperopt(lambda k: (read(k)[0], read(k)[1] + 4), 4, scaling="none", features=3).hosting([0])


def test_a_program_is_the_same_whosever_data_is_here() -> None:
    for name, options in (
        ("quadratic", {"agents": 4, "records": "ragged", "noise": 0.1, "batch_size": 2}),
        ("quadratic", {"agents": 4, "records": "ragged", "noise": 0.1}),
        ("hyperopt", {"agents": 4, "data": "iris", "positive": "setosa", "batch_size": None}),
        ("policy", {}),
    ):
        problem: Problem = hb.problems.get(name)(**options)
        hashes = {problem.hosting([k]).program_hash() for k in range(problem.size)}
        assert hashes == {problem.program_hash()}, name
    other = hb.problems.get("quadratic")(agents=4, dim_x=4)
    assert other.program_hash() != hb.problems.get("quadratic")(agents=4).program_hash()


# --- tables ------------------------------------------------------------------------------------


def test_a_csv_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('\ufeffage, name,"blood, red"\n1,ana,2.5\n\n2,ben,\n')
    table = read_table(path)
    assert list(table) == ["age", "name", "blood, red"]
    np.testing.assert_array_equal(table["age"], [1.0, 2.0])
    np.testing.assert_array_equal(table["blood, red"], [2.5, np.nan])
    assert table["name"].tolist() == ["ana", "ben"]


def test_a_libsvm_table(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
    table = read_table(path)
    assert table["features"].tolist() == [[0.5, 0, 2], [0, 1, 0]]
    assert table["label"].tolist() == [1, -1]
    files = AgentFiles({7: path})
    assert files.features == 3
    features, labels = files.labelled(7)
    assert features.shape == (2, 3)
    assert labels.tolist() == [1, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no records"),
        ("a,b\n", "holds no records"),
        ("1,2\n3,4\n", "must name the columns"),
        ("a,a\n3,4\n", "is empty or there twice"),
        ("a,\n3,4\n", "is empty or there twice"),
        ("a,b\n3,4\n5\n", "line 3: 1 values"),
    ],
)
def test_bad_tables(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_table(path)


def test_tables_of_other_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("b,c,a\n5,6,7\n")
    files = AgentFiles({0: tmp_path / "a.csv", 1: tmp_path / "b.csv"})
    assert {name: v.tolist() for name, v in files(1).items()} == {"a": [7.0], "b": [5.0]}
    files = AgentFiles({0: tmp_path / "b.csv", 1: tmp_path / "a.csv"})
    with pytest.raises(ConfigError, match=r"a\.csv has no column 'c'"):
        files(1)
    with pytest.raises(ConfigError, match="agent 2 is not here"):
        files(2)
    with pytest.raises(ConfigError, match="There is no data file"):
        AgentFiles({0: tmp_path / "nothing.csv"})
