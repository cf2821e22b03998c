"""Runs cases in processes of their own, so that one that dies or hangs is an outcome and not the end. They share the executable cache."""

import multiprocessing
import multiprocessing.connection
import signal
import sys
import time

LIMIT = 600  # seconds for one case; the slowest takes under one minute on an idle core


def _serve(connection, run):
    connection.send(None)  # started: what is imported is not part of a job's time
    while True:
        job = connection.recv()
        if job is None:
            return
        begun = time.process_time()
        connection.send((run(job), time.process_time() - begun))


class _Worker:
    def __init__(self, context, run, jobs):
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, run), daemon=True)
        self.process.start()
        theirs.close()
        self.jobs, self.begun = list(jobs), None  # the first job is the one that runs, since `begun`

    def give(self, jobs):
        self.jobs = list(jobs)
        self._next()

    def _next(self):
        self.begun = time.monotonic()
        if self.jobs:
            self.connection.send(self.jobs[0])

    def take(self):
        """The (job, result, seconds) that has come, if one has. EOFError if the process has ended."""
        try:
            message = self.connection.recv()
        except ConnectionResetError as error:
            raise EOFError from error
        job = self.jobs.pop(0) if message else None
        self._next()
        return (job, *message) if message else None

    def seconds(self):
        return time.monotonic() - self.begun if self.begun else 0.0

    def end(self):
        self.process.kill()
        self.process.join()


def _kill_late(workers):
    for worker in workers:
        if worker.jobs and worker.seconds() > LIMIT:
            worker.process.kill()


def results(groups, run, lost, count):
    """Yields (job, result, seconds of processor time) of every job. A group's jobs run in order in one process; `lost(exit code)` is the
    result of a job whose process ended twice: the first time is printed, and may be what another job of the process left behind. One
    that is killed for its time is not tried again. `run` must be importable by name."""
    tried = set()
    context = multiprocessing.get_context("spawn")
    waiting, workers = list(groups)[::-1], []
    try:
        while waiting or workers:
            while waiting and len(workers) < count:
                workers.append(_Worker(context, run, waiting.pop()))
            ready = multiprocessing.connection.wait([w.connection for w in workers], timeout=5)
            _kill_late(workers)
            for worker in [w for w in workers if w.connection in ready]:
                try:
                    done = worker.take()
                except EOFError:
                    workers.remove(worker)
                    worker.process.join()
                    job, code = worker.jobs[0], worker.process.exitcode
                    if code != -signal.SIGKILL and job not in tried:
                        tried.add(job)
                        print(
                            f"{job}: its process ended (exit code {code}); trying it again in another",
                            file=sys.stderr,
                            flush=True,
                        )
                        waiting.append(worker.jobs)
                        continue
                    yield job, lost(code), worker.seconds()
                    if worker.jobs[1:]:
                        waiting.append(worker.jobs[1:])
                    continue
                if done:
                    yield done
                if not worker.jobs and waiting:
                    worker.give(waiting.pop())
                elif not worker.jobs:
                    workers.remove(worker)
                    worker.connection.send(None)
                    worker.process.join(10)
    finally:
        for worker in workers:
            worker.end()
