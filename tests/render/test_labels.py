"""Labels side by side above their points."""

import numpy as np
import pytest

from tracekit.render.charts.model import spread_positions


@pytest.mark.parametrize("wanted", [[0.5] * 20, [0.0] * 20, [1.0] * 20, [0.1] * 5 + [0.9] * 15, [0.3]])
def test_labels_stay_apart_and_on_the_chart(wanted):
    places = spread_positions(np.array(wanted), 0.05)
    assert (np.diff(places) >= 0.05 - 1e-9).all()
    assert places[0] >= 0.025 - 1e-9
    assert places[-1] <= 0.975 + 1e-9


def test_labels_that_have_room_stay_above_their_points_and_others_part_evenly():
    assert spread_positions(np.array([0.2, 0.5, 0.8]), 0.1) == pytest.approx([0.2, 0.5, 0.8])
    assert spread_positions(np.array([0.2, 0.5, 0.5, 0.5]), 0.1) == pytest.approx([0.2, 0.4, 0.5, 0.6])
