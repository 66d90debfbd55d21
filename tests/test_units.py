"""Numbers and names as people read them."""

import pytest

from tracekit.format import (
    format_bytes,
    format_change,
    format_count,
    format_dollar_range,
    format_dollars,
    format_duration,
    format_interval,
    format_number,
    format_percent,
    format_quantity,
    format_range,
    shorten_kernel_name,
)

LAMBDA = "at::native::gpu_kernel_impl<at::native::AddFunctor<float> >(at::TensorIteratorBase&)::{lambda(int)#1}"
TITLES = {
    "void at::native::(anonymous namespace)::CatArrayCopy<float, 2>(float*, int)": "CatArrayCopy<float, 2>",
    f"void at::native::elementwise_kernel<128, 2, {LAMBDA}>(int, {LAMBDA})": (
        "elementwise_kernel<128, 2, gpu_kernel_impl<AddFunctor<float> >(at::TensorIteratorBase&)::{lambda(int)#1}>"
    ),
    "void cutlass::device_kernel<ep::GemmKernel<2> >(ep::GemmKernel<2>::Params)": "ep::GemmKernel<2>",
    "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)": "ncclDevKernel_SendRecv",
    "ampere_sgemm_32x128_nt": "ampere_sgemm_32x128_nt",
    "aten::mm": "aten::mm",
    "train.py(12): step": "train.py(12): step",
    "Memcpy HtoD (Pinned -> Device)": "Memcpy HtoD (Pinned -> Device)",
}


@pytest.mark.parametrize("name", TITLES)
def test_titles_of_kernels_say_what_they_do(name):
    assert shorten_kernel_name(name) == TITLES[name]


DURATIONS = {
    0: "0",
    0.004: "0",
    0.005: "0.01 µs",
    9.994: "9.99 µs",
    9.996: "10.0 µs",
    99.96: "100 µs",
    999.4: "999 µs",
    999.6: "1.00 ms",
    12_345: "12.3 ms",
    999_400: "999 ms",
    999_600: "1.00 s",
    1_234e6: "1,234 s",
}


@pytest.mark.parametrize("us", DURATIONS)
def test_durations_have_three_digits_in_the_unit_that_they_are_rounded_to(us):
    assert format_duration(us) == DURATIONS[us]


def test_a_change_that_is_not_seen_has_no_sign():
    assert [format_change(us) for us in (1e-9, -0.004, -0.02, 12_345)] == ["0", "0", "−0.02 µs", "+12.3 ms"]


def test_what_rounds_up_to_the_next_digit_has_no_fourth_one():
    assert [format_number(value) for value in (0.999, 9.996, -99.96, 999.6)] == ["1.00", "10.0", "-100", "1,000"]
    assert [format_percent(value) for value in (0, 0.04, 0.05, 0.94, 0.97, 99.6)] == [
        "0 %",
        "<0.1 %",
        "0.1 %",
        "0.9 %",
        "1 %",
        "100 %",
    ]
    assert format_interval(7.06e3, 999.7e3) == "0.01–1.00 s"


def test_small_amounts_have_two_digits_also_where_the_last_is_0():
    assert [format_dollars(amount) for amount in (None, 0, 3.1e-7, 0.00496, 0.0984, 0.0998, 0.1004, 12.34)] == [
        "–", "0.00", "0.00000031", "0.0050", "0.098", "0.10", "0.10", "12.34",
    ]  # fmt: skip


def test_the_ends_of_an_interval_have_the_decimals_of_what_they_are_of():
    assert format_dollar_range((0.4391, 3.7122, 4.9871)) == "$0.44 to $4.99"
    assert format_dollar_range((0.0011, 0.0123, 0.456)) == "$0.001 to $0.456"
    assert format_dollar_range((0.0011, 12, 1234)) == "$0.0011 to $1,234.00"
    assert format_dollar_range((900, 1234.5, 2000)) == "$900 to $2,000"
    assert [format_range(figure) for figure in ((0.87, 1, 1.15), (1.4, 4, 16), (9.5, 10, 12))] == [
        "0.87 to 1.15", "1.4 to 16", "9.5 to 12.0",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("bytes_", "text"),
    [(0, "0 bytes"), (1023, "1023 bytes"), (1 << 21, "2 MiB"), (3 << 29, "1.5 GiB"), (1 << 32, "4 GiB")],
)
def test_sizes_have_the_unit_that_suits_them(bytes_, text):
    assert format_bytes(bytes_) == text


@pytest.mark.parametrize(("value", "text"), [(41.0, "41"), (40.5, "40.5"), (0.5, "0.50"), (1835.0, "1,835")])
def test_counts_have_decimals_only_where_steps_differ(value, text):
    assert format_count(value) == text


def test_one_of_something_is_no_plural():
    assert [format_quantity(count, "launch") for count in (0, 1, 1234)] == ["0 launches", "1 launch", "1,234 launches"]
    assert format_quantity(1, "kernel") == "1 kernel"
