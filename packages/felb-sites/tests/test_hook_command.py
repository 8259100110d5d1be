"""The command that a site is to call: no shell reads it."""

import pytest

from felb.errors import InputError
from felb_sites.cli.site import check_hook

NOT_CALLABLE = ["cat | mail me", "cat > log.txt", "true && true", "echo $(date)", "no-such-program", "'x"]


@pytest.mark.parametrize("command", NOT_CALLABLE)
def test_a_command_that_cannot_be_called_is_refused(command):
    with pytest.raises(InputError) as refused:
        check_hook(command)
    assert refused.value.parameter == "notify"


def test_a_command_with_quoted_words_is_accepted():
    check_hook("sh -c 'cat; true'")
