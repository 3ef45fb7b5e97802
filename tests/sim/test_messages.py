"""The complete text of messages about wrong input: file, key, what was found, what is allowed."""
# ruff: noqa: E501 (messages stand here as they are printed)

from __future__ import annotations

import pytest

from sim.config.loader import load_profile, load_program, load_resolved, load_scenario, parse_assignments
from sim.errors import InputError


def message(call, *args) -> str:
    with pytest.raises(InputError) as caught:
        call(*args)
    return str(caught.value)


def test_every_problem_of_a_file_is_named_at_once(write_scenario):
    path = write_scenario(
        """
device = "smal"
algorithm = "blok"
overlap = false
relay = "unified"
barrier = "read_don"
block_size = true
host_scale = 0
[serving]
graph_batches = [4, 2]
[workload]
concurrency = 0
concurency = 3
prompt_tokens = { distribution = "lognormal", mean = "x", sd = 3 }
output_tokens = 3.5
[acceptance]
model = "geometric"
[run]
seed = nan
replications = 0
""",
        head="",
    )
    assert message(load_resolved, path).splitlines() == [
        'scenario.toml: barrier: found "read_don"; expected "unguarded", "coarse", "read_done" or "self_fence". '
        "Did you mean read_done?",
        "scenario.toml: host_scale: found 0; expected a number above 0",
        "scenario.toml: block_size: found true; expected a whole number",
        "scenario.toml: serving.graph_batches: found [4, 2]; expected batch sizes in ascending order without "
        "repeats",
        "scenario.toml: workload.concurrency: found 0; expected at least 1",
        'scenario.toml: workload.prompt_tokens.mean: found "x"; expected a number',
        "scenario.toml: workload.prompt_tokens.cv: found nothing; expected a value",
        "scenario.toml: workload.prompt_tokens.sd: found an unknown key (= 3); expected cv, distribution or mean",
        "scenario.toml: workload.output_tokens: found 3.5; expected a whole number",
        "scenario.toml: workload.concurency: found an unknown key (= 3); expected arrival_rate_per_s, "
        "client_delay_us, concurrency, output_tokens, prompt_tokens or requests. Did you mean concurrency?",
        'scenario.toml: acceptance.model: found "geometric"; expected a model: truncated_geometric, '
        "per_position, match_expected or recorded",
        "scenario.toml: run.seed: found nan; expected a whole number",
        "scenario.toml: run.replications: found 0; expected at least 1",
        'scenario.toml: relay: found "unified" with overlap = false; expected no relay: the synchronous loop has '
        "one stream and nothing in flight to order. Remove relay, or set overlap = true.",
        'scenario.toml: device: found "smal"; expected a path or one of small. Did you mean small?',
        'scenario.toml: algorithm: found "blok"; expected a path or one of block, chain, fenced, lookup or plain. '
        "Did you mean block?",
    ]


def test_a_missing_device_names_the_devices_there_are(write_scenario):
    path = write_scenario("", head="")
    assert message(load_scenario, path).splitlines()[0] == (
        "scenario.toml: device: found nothing; expected the cost profile to use: a path or one of small"
    )


def test_a_syntax_error_names_its_line(write_scenario):
    path = write_scenario("relay = unified\n")
    assert message(load_scenario, path) == (
        "scenario.toml: found text that is not TOML: Invalid value (at line 3, column 9); expected valid TOML in UTF-8"
    )


def test_a_value_from_the_command_line_is_located_there(write_scenario):
    assert message(load_scenario, write_scenario(""), {"workload.concurrency": "no"}) == (
        '--set workload.concurrency: found "no"; expected a whole number'
    )


def test_a_misspelt_table_on_the_command_line_offers_the_right_one(write_scenario):
    text = message(load_scenario, write_scenario(""), {"workloda.concurrency": "8"})
    assert text.startswith("--set workloda: found an unknown key (= {concurrency = 8}); expected acceptance,")
    assert text.endswith("Did you mean workload?")


def test_a_key_inside_a_plain_value_is_refused(write_scenario):
    path = write_scenario("[run]\nseed = 1\n")
    assert message(load_scenario, path, {"run.seed.x": "1"}) == (
        "--set run.seed.x: found run.seed = 1, which has no keys; expected a table. Set run.seed as a whole."
    )


def test_an_assignment_without_a_value_is_refused():
    assert message(parse_assignments, ["relay", "=3", "a=b"]) == (
        "--set relay: found no key with a value; expected KEY=VALUE\n"
        "--set =3: found no key with a value; expected KEY=VALUE"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'overlap = false\nbarrier = "coarse"\nrelay = "unified"\nprep_stream = "plan"',
            [
                f'scenario.toml: {key}: found "{value}" with overlap = false; expected no {key}: the synchronous '
                f"loop has one stream and nothing in flight to order. Remove {key}, or set overlap = true."
                for key, value in (("relay", "unified"), ("barrier", "coarse"), ("prep_stream", "plan"))
            ],
        ),
        (
            'algorithm = "plain"\nrelay = "direct_carry"\nhost_lengths = "bound"\nbarrier = "self_fence"',
            [
                'scenario.toml: relay: found "direct_carry"; expected unified: the host knows every length of '
                "plain@e-1, so no lengths are handed on by reference",
                'scenario.toml: host_lengths: found "bound"; expected none: the host knows every length of '
                "plain@e-1, so none are fetched",
                'scenario.toml: barrier: found "self_fence"; expected unguarded, coarse or read_done: the host '
                "knows every length of plain@e-1, so its worker has no fence of its own",
            ],
        ),
        (
            'algorithm = "lookup"\nhost_lengths = "none"',
            [
                'scenario.toml: host_lengths: found "none"; expected exact: lookup@e-1 looks drafts up on the '
                "host, which needs exact lengths before it launches"
            ],
        ),
        (
            'platform = "hip"\nd2h_stream = "private"',
            [
                'scenario.toml: d2h_stream: found "private" with platform hip; expected "schedule": the platform '
                "hip copies lengths to the host on the schedule stream"
            ],
        ),
        (
            'algorithm = "fenced"\nbarrier = "read_done"\nbarrier_fallback = false',
            [
                "scenario.toml: barrier: found read_done with barrier_fallback = false; expected a program that "
                "marks its last shared read: fenced@e-1 does not. Set barrier_fallback = true to wait for the "
                "whole forward instead, or barrier = coarse."
            ],
        ),
        (
            "block_size = 17",
            ["scenario.toml: block_size: found 17; expected 2 to 16, what block@e-1 supports"],
        ),
        (
            'algorithm = "plain"\nblock_size = 2',
            ["scenario.toml: block_size: found 2; expected 1, what plain@e-1 supports"],
        ),
        (
            'algorithm = "chain"\ndraft_steps = 8\ntopk = 2',
            [
                "scenario.toml: topk: found 2; expected 1: chain@e-1 drafts a chain",
                "scenario.toml: draft_steps: found 8; expected 1 to 7, what chain@e-1 supports",
            ],
        ),
        (
            'algorithm = "chain"\ndraft_steps = 3\nblock_size = 5',
            [
                "scenario.toml: block_size: found 5 with draft_steps = 3; expected 4: a chain verifies its drafts "
                "and one more. Give one of the two."
            ],
        ),
        (
            "draft_steps = 3",
            [
                "scenario.toml: draft_steps: found 3; expected no draft_steps: block@e-1 drafts neither a chain "
                "nor a tree. Use block_size."
            ],
        ),
        (
            'engine = "e-2"',
            [
                'scenario.toml: algorithm: found "block" for engine "e-2"; expected an engine that declares it: e-1. '
                "Did you mean e-1?"
            ],
        ),
        (
            "workload = { concurrency = 2, arrival_rate_per_s = 3.0 }",
            [
                "scenario.toml: workload: found both concurrency and arrival_rate_per_s; expected exactly one: "
                "concurrency (closed loop) or arrival_rate_per_s (open loop)"
            ],
        ),
        (
            'workload = { prompt_tokens = { file = "none.txt" } }',
            [
                'scenario.toml: workload.prompt_tokens.file: found "none.txt", which cannot be read; expected a text '
                "file of numbers"
            ],
        ),
        (
            "workload = { prompt_tokens = {} }",
            [
                "scenario.toml: workload.prompt_tokens: found neither file nor values; expected "
                'file = "<path>" or values = [...]'
            ],
        ),
    ],
)
def test_refusals_give_their_reason(write_scenario, text, expected):
    head = 'device = "small"\n' + ("" if "algorithm" in text else 'algorithm = "block"\n')
    assert message(load_resolved, write_scenario(text, head=head)).splitlines() == expected


def test_a_program_file_of_another_engine_is_refused(write_scenario, small_configs):
    path = write_scenario(
        f'engine = "e-2"\nalgorithm = "{small_configs}/algorithms/block@e-1.toml"\n', 'device="small"\n'
    )
    assert message(load_resolved, path) == (
        'scenario.toml: engine: found "e-2"; expected "e-1", the engine of the step program '
        f'"{small_configs}/algorithms/block@e-1.toml"'
    )


def test_a_program_on_the_private_copy_stream_is_refused_where_there_is_none(write_scenario, small_configs):
    program = small_configs / "algorithms" / "block@e-1.toml"
    program.write_text(program.read_text().replace('stream = "forward"', 'stream = "d2h"'))
    assert message(load_resolved, write_scenario('platform = "hip"')) == (
        "scenario.toml: platform: found hip with block@e-1, which names the private D2H stream; expected a program "
        "that does not: the platform hip copies lengths to the host on the schedule stream"
    )


def test_a_faulty_profile_is_named_with_the_cost(small_configs):
    profile = small_configs / "devices" / "small.toml"
    profile.write_text(
        profile.read_text() + '"graph.verify" = { value = [1.0, 2.0], batch = [1] }\n"x" = { value = "1" }'
    )
    assert message(load_profile, "small") == (
        'small.toml: costs."graph.verify": found {value = [1.0, 2.0], batch = [1]}; expected a consistent table: '
        "value lists 2 entries but batch lists 1; give one a batch\n"
        'small.toml: costs.x.value: found "1"; expected a number or a list'
    )


def test_a_faulty_program_is_named_with_the_operation(small_configs):
    program = small_configs / "algorithms" / "block@e-1.toml"
    program.write_text(
        program.read_text()
        .replace('kind = "graph"', 'kind = "grph"')
        .replace('name = "verify"', 'nam = "verify"')
    )
    assert message(load_program, "block", "e-1").splitlines() == [
        "block@e-1.toml: operations[0].name: found nothing; expected a value",
        'block@e-1.toml: operations[0].kind: found "grph"; expected "host", "kernel", "graph", "copy", "record", '
        '"wait", "synchronize", "publish" or "stash". Did you mean graph?',
        'block@e-1.toml: operations[0].nam: found an unknown key (= "verify"); expected cost, direction, event, host, '
        "kind, marks, name, on, phase, reads, share, stream, when or writes. Did you mean name?",
    ]


def test_a_missing_path_is_no_name(small_configs):
    assert message(load_scenario, "./nothing.toml") == (
        'scenario: found "./nothing.toml", which is no file; expected the path of a TOML file'
    )
