CREATE TABLE worker_deaths (                                  -- the newest ones, a row for each run that is charged
    at     REAL    NOT NULL,
    worker TEXT    NOT NULL,
    run    INTEGER NOT NULL,                                   -- died with the worker before it made progress; 0: none did
    PRIMARY KEY (at, worker, run)
) WITHOUT ROWID;
