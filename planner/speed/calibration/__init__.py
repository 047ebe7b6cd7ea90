"""What `plan calibrate` measured on this machine, and what plans take from it.

record    a calibration as a digest-checked document: machine, figures, runs that were compared
machine   which machine it is: device, driver, power limit, processor (I/O)
store     where the record of this machine is kept, and whether it is of this machine still (I/O)
rates     its figures as the rates that the speed model asks for
"""
