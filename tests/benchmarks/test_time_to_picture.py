from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest

from leakscope.reproduction.victims import TUNED_ON

# The single held-out images, drawn once: a change of the draw would mix results of different victims.
PINNED = [(447,), (449,), (786,), (547,), (512,), (598,), (792,), (504,)]


class TestCases:
    def test_held_out_images_were_used_nowhere_and_never_twice(self, load):
        cases = load("picture_time.cases")
        drawn = [image for batches in cases.draw_held_out().values() for batch in batches for image in batch]
        assert len(set(drawn)) == len(drawn) == 8 * (1 + 4 + 8 + 4)
        assert not set(drawn) & (TUNED_ON["cifar10"] | set(range(600, 721)) | set(range(340)))
        assert max(drawn) < 800

    def test_the_draw_is_pinned(self, load):
        assert load("picture_time.cases").draw_held_out()["1"] == PINNED

    def test_tuning_and_held_out_victims_share_neither_images_nor_weights(self, load):
        case = load("picture_time.cases").parse_case("resnet18:plain:4")
        tuning, held_out = case.tuning_victims(4), case.held_out_victims(6)
        assert [victim.images for victim in tuning][:2] == [(4001, 4002, 4003, 4004), (4102, 4103, 4104, 4105)]
        assert {victim.split for victim in tuning} == {"train"}
        assert {victim.split for victim in held_out} == {"test"}
        assert {victim.weights for victim in tuning} == {1}
        assert len({victim.weights for victim in held_out} - {1}) == len(held_out) == 6

    def test_local_training_is_four_steps_of_one_image(self, load):
        case = load("picture_time.cases").parse_case("convnet:normalised:fedavg")
        assert case.size == len(case.held_out_victims(1)[0].images) == 4
        assert case.local_options()[:4] == ("--local-steps", 4, "--local-batch", 1)
        assert load("picture_time.cases").parse_case("convnet:normalised:4").local_options() == ()

    @pytest.mark.parametrize("text", ["convnet", "convnet:plain", "convnet:plain:2", "alexnet:plain:1", "convnet:x:1"])
    def test_a_wrong_case_is_told_what_one_looks_like(self, load, text):
        with pytest.raises(SystemExit, match=r"network|convnet\|"):
            load("picture_time.cases").parse_case(text)


class TestResume:
    @pytest.fixture
    def setting(self, load, worker_result, monkeypatch, tmp_path):
        running, cases = load("picture_time.running"), load("picture_time.cases")
        plain = load("picture_time.contestants").CONTESTANTS["plain"]
        case = cases.parse_case("convnet:plain:1")
        built = []
        monkeypatch.setattr(running, "run_worker", lambda _python, script, *_rest: built.append(script))
        made = []

        def work(job, folder, _victim):
            made.append((job.victim.number, job.length, job.settings["tv"]))
            running.write_json(job.path(folder), worker_result([10.0, 12.0, job.settings["tv"]]))
            return running.read_kept(job, folder)

        def jobs(*lengths, tv=1.0, victims=2):
            chosen = case.held_out_victims(victims)
            return [running.Job(case, plain, {"tv": tv}, one, length) for one in chosen for length in lengths]

        return SimpleNamespace(running=running, folder=tmp_path, work=work, made=made, built=built, jobs=jobs)

    def test_a_kept_run_is_not_run_again(self, setting):
        first = setting.running.run_all(setting.jobs(3), setting.folder, work=setting.work)
        again = setting.running.run_all(setting.jobs(3), setting.folder, work=setting.work)
        assert setting.made == [(0, 3, 1.0), (1, 3, 1.0)]
        assert setting.built == ["victim.py", "victim.py"]
        assert first == again

    def test_another_setting_length_or_victim_is_another_run(self, setting):
        for jobs in (setting.jobs(3), setting.jobs(3, 4, tv=2.0), setting.jobs(3, victims=3)):
            setting.running.run_all(jobs, setting.folder, work=setting.work)
        second = [(0, 3, 2.0), (0, 4, 2.0), (1, 3, 2.0), (1, 4, 2.0)]
        assert setting.made == [(0, 3, 1.0), (1, 3, 1.0), *second, (2, 3, 1.0)]

    def test_runs_come_back_in_the_order_of_the_jobs(self, setting):
        setting.running.run_all(setting.jobs(3, tv=5.0, victims=1), setting.folder, work=setting.work)
        jobs = [*setting.jobs(3, tv=7.0, victims=1), *setting.jobs(3, tv=5.0, victims=1)]
        found = setting.running.run_all(jobs, setting.folder, work=setting.work)
        assert [run.returned for run in found] == [7.0, 5.0]

    def test_a_half_written_run_is_made_again(self, setting):
        job = setting.jobs(3, victims=1)[0]
        path = job.path(setting.folder)
        path.parent.mkdir(parents=True)
        path.with_suffix(".part").write_text("{")
        assert setting.running.read_kept(job, setting.folder) is None

    def test_a_worker_that_fails_keeps_nothing(self, setting, monkeypatch):
        def fail(_python, _script, _victim, out, *_options):
            out.write_text("{")
            raise SystemExit("plain_worker.py ended with code 1")

        monkeypatch.setattr(setting.running, "run_worker", fail)
        job = setting.jobs(3, victims=1)[0]
        with pytest.raises(SystemExit):
            setting.running.run_job(job, setting.folder, setting.folder / "victim.npz")
        assert setting.running.read_kept(job, setting.folder) is None

    def test_time_left_follows_the_speed_seen_so_far(self, setting):
        jobs = setting.jobs(1, 2, 3, 4, victims=1)
        progress = setting.running.Progress(jobs, kept=0)
        run = SimpleNamespace(returned=1.0, seconds=1.0)
        progress.report(jobs[0], run)
        assert progress.time_left(10.0) == pytest.approx(30.0)


class TestTuning:
    def test_options_are_tuned_one_after_another_and_the_first_again(self, load, make_run):
        tuning = load("picture_time.tuning")
        worth = {(1.0, 1.0): 10, (2.0, 1.0): 11, (3.0, 1.0): 10, (2.0, 5.0): 12, (3.0, 5.0): 14, (1.0, 5.0): 0}
        asked = []

        def run(settings):
            asked.append((settings["a"], settings["b"]))
            return [make_run([float(worth[asked[-1]])] * 2)] * 2

        grids = [("a", (1.0, 2.0, 3.0)), ("b", (1.0, 5.0)), ("a", (1.0, 2.0, 3.0))]
        found = tuning.choose({"a": 1.0, "b": 1.0}, grids, run)
        assert found.settings == {"a": 3.0, "b": 5.0}
        assert len(asked) == len(set(asked)) == 6
        assert found.at_the_end_of_its_grid == ["a", "b"]
        assert found.pace == {"setup": 0.0, "evaluation": 1.0}
        assert {"settings": {"a": 2.0, "b": 5.0}, "mean": 12, "dB": [12, 12]} in found.tried

    def test_of_equal_settings_the_present_one_stays(self, load, make_run):
        tuning = load("picture_time.tuning")
        grids = [("a", (1.0, 2.0, 3.0)), ("b", ("x", "y"))]
        found = tuning.choose({"a": 2.0, "b": "y"}, grids, lambda _settings: [make_run([5.0, 5.0])])
        assert found.settings == {"a": 2.0, "b": "y"}
        assert len(found.tried) == tuning.count_settings(grids) == 4

    def test_a_value_inside_its_grid_and_a_word_are_at_no_end(self, load):
        grids = [("tv", (1.0, 2.0, 3.0)), ("start", ("grey", "uniform"))]
        assert load("picture_time.tuning").at_the_end({"tv": 2.0, "start": "grey"}, grids) == []

    def test_a_broken_picture_counts_as_nothing(self, load, make_run):
        assert load("picture_time.tuning").mean_level([make_run([20.0, 20.0]), make_run([1.0, math.nan])]) == 10.0

    def test_how_local_steps_are_taken_is_tuned_only_where_there_are_any(self, load):
        plain = load("picture_time.contestants").CONTESTANTS["plain"]
        parse = load("picture_time.cases").parse_case
        names = [[name for name, _ in plain.order_of_tuning(parse(f"convnet:plain:{s}"))] for s in ("1", "fedavg")]
        assert names[0] == ["tv", "rate", "start", "schedule", "tv"]
        assert names[1] == ["replay", *names[0]]
        local = plain.settings_before_tuning(parse("convnet:plain:fedavg"))
        assert local == {**plain.settings_before_tuning(parse("convnet:plain:4")), "replay": "one-gradient"}


class TestContest:
    @pytest.fixture
    def entry(self, load):
        contestants, contest = load("picture_time.contestants"), load("picture_time.contest")

        def make(name, *, setup=1.0, evaluation=0.5, **settings):
            one = contestants.CONTESTANTS[name]
            return contest.Entry(one, {**one.settings, **settings}, contest.Pace(setup, evaluation))

        return make

    def test_a_falling_rate_has_a_run_per_budget_that_stays_below_it(self, entry):
        ours = entry("leakscope")
        assert ours.lengths([5.0, 10.0, 20.0]) == [7, 17, 36]
        assert all(ours.pace.expects(n) <= b for n, b in zip([7, 17, 36], [5, 10, 20], strict=True))
        assert ours.lengths([1.0, 5.0]) == [7]
        assert entry("leakscope", setup=9.0).lengths([5.0]) == [2]

    def test_a_rate_that_is_held_has_one_run(self, entry):
        assert entry("leakscope, agic held").lengths([5.0, 20.0]) == [36]
        assert entry("plain", schedule="constant").lengths([5.0, 20.0]) == [36, 120]
        assert entry("plain").lengths([5.0, 20.0]) == [7, 36, 120]

    def test_small_networks_do_not_run_for_ever(self, entry):
        assert entry("leakscope", evaluation=1e-4).lengths([5.0, 80.0]) == [3_000]

    def test_contestants_take_turns_on_every_victim(self, load, entry):
        contest, case = load("picture_time.contest"), load("picture_time.cases").parse_case("convnet:plain:1")
        jobs = contest.plan(case, [entry("leakscope"), entry("breaching")], case.held_out_victims(2), [5.0, 10.0])
        assert [job.victim.number for job in jobs] == [0] * 4 + [1] * 4
        assert [job.contestant.name for job in jobs[:4]] == ["leakscope", "breaching"] * 2

    def test_what_is_kept_has_levels_times_and_victims(self, load, entry, make_run):
        contest, case = load("picture_time.contest"), load("picture_time.cases").parse_case("convnet:plain:1")
        plain, ours = entry("plain", setup=0.0, evaluation=1.0), entry("leakscope", setup=0.0, evaluation=1.0)
        rising = [10 + n / 10 for n in range(120)]
        broken = rising[:60] + [1.0] * 60
        runs = {
            "plain": {4: [make_run([14.0] * 4, pace=0.5)] * 2, 120: list(map(make_run, (rising, broken)))},
            "leakscope": {4: [make_run([10, 15, 16, 18]), make_run([10, 11, 12, math.nan])]},
        }
        kept = contest.condense(case, [plain, ours], runs, case.held_out_victims(2), [5.0, 200.0])
        assert json.loads(json.dumps(kept, allow_nan=False))["plateau"] == pytest.approx([21.6, 15.6])
        anchor, mine = kept["contestants"]["plain"], kept["contestants"]["leakscope"]
        assert anchor["ms per evaluation"] == [1000, 1000]
        assert anchor["dB"] == {"5": [14, 14], "200": [21.9, 1.0]}
        assert anchor["seconds"]["plateau"] == {"length": 120, "victims": [117, 57]}
        assert mine["dB"]["5"] == [18, None]
        assert mine["seconds"]["15"] == {"length": 4, "victims": [2, None]}
        assert mine["seconds"]["plateau"]["victims"] == [None, None]
        assert kept["waited"] == 2.0
        assert kept["grey"] == [5.0, 5.0]
        assert [tuple(one["test images"]) for one in kept["victims"]] == PINNED[:2]

    def test_different_updates_are_refused(self, load, make_run):
        contest = load("picture_time.contest")
        same = {"plain": {2: [make_run([1, 2]), make_run([1, 2], norm=7.0)]}}
        contest.refuse_different_updates({**same, "leakscope": same["plain"]})
        other = {3: [make_run([1, 2, 3]), make_run([1, 2, 3], norm=7.01)]}
        with pytest.raises(SystemExit, match="different updates"):
            contest.refuse_different_updates({**same, "leakscope": other})

    def test_the_page_shows_medians_lists_and_arrivals(self, load, entry, make_run):
        contest, page = load("picture_time.contest"), load("picture_time.page")
        case = load("picture_time.cases").parse_case("convnet:plain:1")
        runs = {4: [make_run([10, 15, 16, 18]), make_run([10, 15, 16, 17.5]), make_run([9, 9, 9, 9])]}
        made = entry("leakscope", setup=0.0, evaluation=1.0)
        kept = contest.condense(case, [made], {"leakscope": runs}, case.held_out_victims(3), [2.0, 5.0])
        lines = page.render([kept]).splitlines()
        assert "| leakscope | 1000 | 500 | 15.0 | 17.5 | 2 (2/3) | 4 (2/3) | never (0/3) |" in lines
        assert "| leakscope | 15.0 15.0 9.0 | 18.0 17.5 9.0 | attack inverting-gradients, diagnosing no |" in lines
        tables = [line.count("|") for line in lines if line.startswith("|")]
        assert len(set(tables[:3])) == len(set(tables[3:])) == 1
        drawing = page.draw(kept)
        assert drawing.count("<polyline") == 1
        assert "leakscope: 15.0 dB at 2 s, 17.5 dB at 5 s" in drawing

    def test_settings_become_options_of_the_worker(self, load):
        plain = load("picture_time.contestants").CONTESTANTS["plain"]
        command = plain.command({"rate": 0.1, "start": "grey"}, length=160)
        assert command == ("--steps", 160, "--every", 2, "--rate", 0.1, "--start", "grey")

    def test_a_missing_environment_is_named(self, load, monkeypatch, tmp_path):
        contestants = load("picture_time.contestants")
        case = load("picture_time.cases").parse_case("convnet:plain:1")
        monkeypatch.setattr(contestants, "BREACHING_PYTHON", tmp_path / "none")
        with pytest.raises(SystemExit, match=r"breaching is missing.*setup\.sh"):
            contestants.chosen_contestants(["plain", "breaching"], case)
        found = contestants.chosen_contestants(["leakscope", "plain", "leakscope, agic held"], case)
        assert [one.name for one in found] == ["plain", "leakscope"]
