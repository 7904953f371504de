"""One server for all commands of a test session, and the records of commands that nothing disturbed."""

import pytest
from tests.faults.commands import SPECS, CommandServer, records_of, run_arguments, write_data


@pytest.fixture(scope="session")
def server():
    server = CommandServer()
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path):
    """A folder with the dataset."""
    write_data(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def undisturbed(server, tmp_path_factory):
    """The records of `SPECS`, and the number of operations on files that the command needed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    write_data(folder)
    finished = server.run(folder, *run_arguments())
    assert finished.code == 0, finished.printed
    return records_of(folder, SPECS), finished.num_operations
